"""Each role can do its part in Kafka, and nothing else: on a broker with an authorizer, SCRAM and TLS."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from tests.support.record_batches import Batch
from tests.support.secure_kafka import Login, secure_broker
from watchword.schemas.topics import (
    JOIN_REFUSED,
    JOIN_REFUSED_OCSF,
    JOIN_REQUESTS,
    JOIN_REQUESTS_DLQ,
    JOIN_RESPONSES,
    NODE_EVENTS,
    TOPICS,
    TRUST_BUNDLE,
    tenant_refusals_topic,
    tenant_topic,
)
from watchword.streams.console.lag import LagReader
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.topics.access import Access
from watchword.streams.topics.admin import apply, differences
from watchword.streams.topics.plan import Wish

pytestmark = pytest.mark.kafka

ACME, GLOBEX = tenant_refusals_topic("acme"), tenant_refusals_topic("globex")
WISH = Wish(1, 1, dict.fromkeys([*(t.name for t in TOPICS), ACME, GLOBEX], 1))
EVERY = [*TOPICS, tenant_topic("acme"), tenant_topic("globex")]
ACCESS = Access(
    agents=("User:agent",),
    gateways=("User:gateway",),
    workers=("User:worker",),
    relays=("User:relay",),
    consoles=("User:console",),
    siems=("User:siem",),
    tenant_siems={"acme": "User:acme-siem"},
    tenant_topics=("acme", "globex"),
    produce_bytes_per_s={"User:agent": 65_536},
)


@dataclass(frozen=True)
class Part:
    """What a role needs; everything else is refused."""

    writes: frozenset[str]
    reads: frozenset[str]
    groups: frozenset[str]


PARTS = {
    "agent": Part(frozenset((JOIN_REQUESTS,)), frozenset((JOIN_RESPONSES, TRUST_BUNDLE)), frozenset()),
    "gateway": Part(frozenset((JOIN_REQUESTS,)), frozenset((JOIN_RESPONSES, TRUST_BUNDLE)), frozenset()),
    "worker": Part(
        frozenset((JOIN_RESPONSES, JOIN_REQUESTS_DLQ)),
        frozenset((JOIN_REQUESTS,)),
        frozenset(("watchword-verifier",)),
    ),
    "relay": Part(
        frozenset((NODE_EVENTS, JOIN_REFUSED, JOIN_REFUSED_OCSF, ACME, GLOBEX)), frozenset(), frozenset()
    ),
    # It may look at what the group has committed, and not commit.
    "console": Part(frozenset(), frozenset(), frozenset(("watchword-verifier",))),
    "siem": Part(frozenset(), frozenset((JOIN_REFUSED, JOIN_REFUSED_OCSF)), frozenset(("siem-splunk",))),
    "acme-siem": Part(frozenset(), frozenset((ACME,)), frozenset(("siem.acme.elastic",))),
}  # fmt: skip
GROUPS = ("watchword-verifier", "siem-splunk", "siem.acme.elastic", "siem.globex.elastic", "other")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Login]:
    """Give a broker on which `topics apply` has run, and its users."""
    folder: Path = tmp_path_factory.mktemp("secure")
    broker = secure_broker(folder)
    try:
        await broker.start()
        login = Login(broker, folder)
        await login.create(*PARTS, "stranger")
        inside = KafkaConnection(broker.internal_bootstrap_servers)
        steps = await apply(inside, WISH, EVERY, ACCESS)
        assert {step.action for step in steps} == {"create", "set"}
        assert await differences(inside, WISH, EVERY, ACCESS) == []
        yield login
    finally:
        await broker.remove()


@dataclass(frozen=True)
class Can:
    """What a client was let do."""

    write: frozenset[str]
    read: frozenset[str]
    join: frozenset[str]


@contextlib.asynccontextmanager
async def client_of(kafka: KafkaConnection) -> AsyncGenerator[Any]:
    """Give a client that is logged in."""
    client = AIOKafkaAdminClient(**kafka.client_options())
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def tried(kafka: KafkaConnection) -> Can:
    """Try everything, with the protocol's own requests: an ordinary consumer hides a refusal behind retries."""
    names = [topic.name for topic in EVERY]
    records = Batch([b"x"]).raw
    produce = ProduceRequest(None, -1, 10_000, [(name, [(0, records)]) for name in names])
    fetch = FetchRequest(0, 0, 1 << 20, 0, [(name, [(0, 0, 1 << 16)]) for name in names])
    async with client_of(kafka) as client:
        written = await client._send_request(produce)
        read = await client._send_request(fetch)
        joined = frozenset([group for group in GROUPS if await _may_join(client, group)])
    return Can(_allowed(written.topics), _allowed(read.topics), joined)


def _allowed(topics: list[Any]) -> frozenset[str]:
    codes = {topic: partitions[0][1] for topic, partitions in topics}
    assert set(codes.values()) <= {0, TopicAuthorizationFailedError.errno}
    return frozenset(topic for topic, code in codes.items() if code == 0)


async def _may_join(client: Any, group: str) -> bool:  # noqa: ANN401 - aiokafka has few annotations
    try:
        coordinator = await client.find_coordinator(group)
        await client.list_consumer_group_offsets(group, coordinator)
    except GroupAuthorizationFailedError:
        return False
    return True


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("role", [*PARTS, "stranger"])
async def test_a_role_can_do_its_part_and_nothing_else(secured: Login, role: str) -> None:
    """A gateway that was broken into reads no refusals; a SIEM that was forges no requests; a tenant sees its own."""
    part = PARTS.get(role, Part(frozenset(), frozenset(), frozenset()))

    can = await tried(secured.connection(role))

    assert (can.write, can.read, can.join) == (part.writes, part.reads, part.groups)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_console_sees_how_far_the_workers_are_behind(secured: Login) -> None:
    """It tells operators a number, and must not be able to read a request for it; who may not look is told so."""
    for role, records in (("console", True), ("stranger", False)):
        reader = LagReader(secured.connection(role), "watchword-verifier", patience_s=60)
        found = await reader.read()
        await reader.stop()
        assert (found.records is not None) == records, found
        assert (found.problem is None) == records


@pytest.mark.asyncio(loop_scope="module")
async def test_no_role_may_change_topics(secured: Login) -> None:
    """Nobody but an administrator makes, grows or opens a topic."""
    for role in PARTS:
        async with client_of(secured.connection(role)) as client:
            answer = await client.create_topics([NewTopic(f"made-by-{role}", 1, 1)])
        codes = [code for _, code, *_ in answer.topic_errors]
        assert codes == [TopicAuthorizationFailedError.errno]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_an_operator_allowed_besides_stays_and_is_told(secured: Login) -> None:
    """A deployment has tools of its own; taking their access away would be an outage."""
    inside = KafkaConnection(secured._broker.internal_bootstrap_servers)
    await apply(inside, WISH, EVERY, Access(siems=("User:stranger",)))
    assert (await tried(secured.connection("stranger"))).read == {JOIN_REFUSED, JOIN_REFUSED_OCSF}

    steps = await apply(inside, WISH, EVERY, ACCESS)
    assert {(s.topic, s.action, s.now) for s in steps} == {
        (JOIN_REFUSED, "kept", "User:stranger may read"),
        (JOIN_REFUSED_OCSF, "kept", "User:stranger may read"),
        ("siem-", "kept", "User:stranger may read"),
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_who_floods_straight_on_kafka_is_slowed_down_and_nobody_else(secured: Login) -> None:
    """The topic is first come, first served: only the broker can keep one machine from filling it before all others."""
    flood = Batch([bytes(60_000)]).raw
    async with (
        client_of(secured.connection("agent")) as agent,
        client_of(secured.connection("gateway")) as gateway,
    ):
        held_for_ms = 0
        for _ in range(100):  # six megabytes, at 64 KiB/s
            held_for_ms = await _written(agent, flood)
            if held_for_ms:
                break
        beside_ms = await _written(gateway, Batch([b"x"]).raw)

    assert held_for_ms > 0
    assert beside_ms == 0


async def _written(client: Any, records: bytes) -> int:  # noqa: ANN401 - aiokafka has few annotations
    """Write to the topic of requests, and return for how long the broker listens to this client no more: milliseconds."""
    answer = await client._send_request(
        ProduceRequest(None, -1, 10_000, [(JOIN_REQUESTS, [(0, records)])])
    )
    assert _allowed(answer.topics) == {JOIN_REQUESTS}
    held_ms: int = answer.throttle_time_ms
    return held_ms


@pytest.mark.asyncio(loop_scope="module")
async def test_a_quota_is_set_and_changed(secured: Login) -> None:
    """A machine that floods slows itself down, and nobody else."""
    inside = KafkaConnection(secured._broker.internal_bootstrap_servers)
    more = Access(agents=("User:agent",), produce_bytes_per_s={"User:agent": 131_072})
    steps = [s for s in await apply(inside, WISH, EVERY, more) if s.action == "set"]
    assert [(s.topic, s.now, s.wanted) for s in steps] == [("User:agent", "65536", "131072")]
    again = await differences(inside, WISH, EVERY, more)
    assert not [s for s in again if s.action == "set"]
