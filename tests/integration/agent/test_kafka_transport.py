"""The agent straight on Kafka."""

import asyncio
import json
from hashlib import sha256

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from tests.support.agent_worker import Worker
from tests.support.agents import Machine
from tests.support.crypto import NODE_ID
from tests.support.kafka import KafkaTopics
from watchword.handlers.crypto.jws import unverified_payload
from watchword.schemas.canonical import unb64
from watchword.schemas.requests import Claims, JoinRequest
from watchword.schemas.topics import (
    JOIN_RESPONSES,
    TRUST_BUNDLE,
)
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.errors import TransportUnavailable
from watchword.streams.agent.join import JoinOptions, JoinResult, join
from watchword.streams.agent.kafka_transport import KafkaTransport
from watchword.streams.kafka_clients import KafkaConnection

pytestmark = pytest.mark.kafka

QUICK = Pace(first_s=0.05, cap_s=0.2, resend_after_s=2.0, poll_s=1.0)


@pytest.fixture
def worker(machine: Machine, kafka_topics: KafkaTopics) -> Worker:
    return Worker(machine, kafka_topics)


@pytest.fixture
def transport(kafka_topics: KafkaTopics) -> KafkaTransport:
    connection = KafkaConnection(kafka_topics.bootstrap_servers)
    return KafkaTransport(connection, topic_prefix=kafka_topics.prefix)


async def joins(machine: Machine, transport: KafkaTransport) -> JoinResult:
    options = JoinOptions(claims=Claims, give_up_after_s=40)
    return await join(machine.state, transport, machine.prover, options, pace=QUICK)


async def test_machine_joins_without_a_gateway(
    machine: Machine, worker: Worker, transport: KafkaTransport
) -> None:
    """Inside a trusted network the gateway is one thing less to run."""
    worker.reactions = [
        lambda request: machine.service.approval(request, seconds=1),
        machine.service.joined,
    ]
    async with worker.working():
        machine.state = machine.state.parent / "new"
        await bootstrap(machine.state, transport, pin=machine.service.pin)
        result = await joins(machine, transport)

    assert result.identity.node.node_id == NODE_ID
    requests = [JoinRequest.read(value) for value in worker.seen]
    assert worker.keys == [sha256(unb64(request.csr)).digest() for request in requests]
    assert None not in {request.reply_key for request in requests}
    assert await transport.crl() is None


async def test_answer_that_comes_at_once_is_not_missed(
    machine: Machine, worker: Worker, transport: KafkaTransport
) -> None:
    """The reader stands at the end before the request is sent, or a fast worker would go unheard."""
    worker.reactions = [machine.service.challenge] * 5 + [machine.service.joined]
    async with worker.working():
        await joins(machine, transport)

    assert len(worker.seen) == 6
    assert len(set(worker.seen)) == 6


async def test_what_others_write_is_passed_over(
    machine: Machine, worker: Worker, transport: KafkaTransport
) -> None:
    """The topic is shared: other machines' answers, forged ones, tombstones, and records that no client can parse."""
    ours = machine.keystore.begin_exchange("p256").csr_sha256
    worker.poisoned = True
    worker.before = [
        (ours, b"forged"),
        (ours, None),
        (bytes(32), b"another machine's"),
        (ours, b"forged again"),
    ]
    worker.reactions = [machine.service.joined]
    async with worker.working():
        await joins(machine, transport)

    assert len(worker.seen) == 1


async def test_lost_answer_is_asked_for_with_the_same_bytes(
    machine: Machine, worker: Worker, transport: KafkaTransport
) -> None:
    """A worker that dies before it answers leaves its request for the next one."""
    worker.reactions = [lambda _: None, machine.service.joined]
    async with worker.working():
        await joins(machine, transport)

    assert len(worker.seen) == 2
    assert len(set(worker.seen)) == 1


async def test_added_partitions_do_not_lose_the_answer(
    machine: Machine, worker: Worker, transport: KafkaTransport, kafka_topics: KafkaTopics
) -> None:
    """A topic that grows while machines wait sends their answers elsewhere; asking again finds them."""
    servers = kafka_topics.bootstrap_servers
    topic = kafka_topics.name(JOIN_RESPONSES)

    async def grow() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.create_partitions({topic: NewPartitions(64)})
        await admin.close()

    grown: list[asyncio.Task[None]] = []

    def first(_: bytes) -> None:
        grown.append(asyncio.create_task(grow()))

    async with worker.working():
        worker.reactions = [first, *[machine.service.joined] * 20]
        await joins(machine, transport)
        await asyncio.gather(*grown)

    assert len(set(worker.seen)) == 1


async def test_documents_that_are_not_published_yet_are_waited_for(
    transport: KafkaTransport, kafka_topics: KafkaTopics
) -> None:
    """A machine may boot before its service was ever started."""
    await kafka_topics.create(TRUST_BUNDLE, configs={"cleanup.policy": "compact"})

    with pytest.raises(TransportUnavailable, match="no key-set is published yet"):
        await transport.key_set()
    assert await transport.crl() is None


async def test_brokers_that_are_away_are_unavailable() -> None:
    """The same error, and the same exit code, as for a gateway that is away."""
    transport = KafkaTransport(KafkaConnection("127.0.0.1:9"))

    with pytest.raises(TransportUnavailable):
        await transport.key_set()
    with pytest.raises(TransportUnavailable):
        async with transport.conversation(bytes(32)):
            pass


async def test_nothing_of_a_join_on_a_shared_topic_is_in_clear(
    machine: Machine, worker: Worker, transport: KafkaTransport, kafka_topics: KafkaTopics
) -> None:
    """Every agent may read every answer there."""
    worker.reactions = [machine.service.joined]
    topic = kafka_topics.name(JOIN_RESPONSES)
    found: list[bytes] = []
    async with worker.working():
        await joins(machine, transport)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka_topics.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(5)])
        while not found:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [record.value or b"" for record in records]
        await consumer.stop()

    (token,) = found
    payload = json.loads(unverified_payload(token))
    assert payload.keys() == {"requestSha256", "issuedAt", "sealed"}
