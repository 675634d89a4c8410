"""A broker dies or is restarted, partitions are added, and a record comes that no client can parse."""

import asyncio
import secrets
import time
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.faults.faults.fault import Fault, Scale, until
from tests.faults.judge.ledger import Poison
from tests.faults.judge.topics import REQUESTS, RESPONSES, partitions_of
from tests.faults.load.kinds import Send, join
from tests.faults.processes.deployment import Deployment
from tests.support.record_batches import Batch
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.kafka_closing import close

_POISON_KEY = b"key-0"
"""The key that `Batch` gives its first record."""


def _one(deployment: Deployment) -> EmbeddedKafka:
    return deployment.rng.choice(deployment.kafka.nodes)


async def kill_broker(deployment: Deployment, scale: Scale) -> int:
    """Kill a broker; others lead its partitions until it is back."""
    node = _one(deployment)
    await node.kill()
    await asyncio.sleep(scale.seconds(15.0, least=8.0))
    await node.start()
    return 1


async def restart_broker(deployment: Deployment, scale: Scale) -> int:
    """Restart a broker in good order: leaders move away from it first."""
    del scale
    await _one(deployment).restart()
    return 1


async def stall_broker(deployment: Deployment, scale: Scale) -> int:
    """Freeze a broker until the others take it for dead."""
    node = _one(deployment)
    node.pause()
    try:
        await asyncio.sleep(scale.seconds(15.0, least=9.0))
    finally:
        node.resume()
    return 1


async def add_partitions(deployment: Deployment, scale: Scale) -> int:
    """Add a partition to the topics of requests and of responses; what comes there is answered."""
    del scale
    servers = deployment.kafka.bootstrap_servers
    counts = await partitions_of(servers, [REQUESTS, RESPONSES])
    for topic, count in counts.items():
        await deployment.kafka.add_partitions(topic, count + 1)
    await deployment.load.kafka.renew()
    new = counts[REQUESTS]
    sends = [
        Send(send.asked, send.value, send.key, partition=new)
        for _ in range(4)
        for send in join(deployment.load.supplies)
    ]
    for send in sends:
        deployment.ledger.add(send.asked)
        await deployment.load.kafka.send(send)
        deployment.ledger.acknowledge(send.asked.digest, time.monotonic())

    async def are_answered() -> bool:
        return all(send.asked.answered_at is not None for send in sends)

    await until(are_answered, "requests on the new partition are answered", within_s=120.0)
    return 1


async def send_poison(deployment: Deployment, scale: Scale) -> int:
    """Write a record with a header whose name is not UTF-8, which kills Kafka's client."""
    del scale
    value = secrets.token_bytes(30)
    counts = await partitions_of(deployment.kafka.bootstrap_servers, [REQUESTS])
    partition = deployment.rng.randrange(counts[REQUESTS])
    offset = await _produce_raw(deployment, Batch([value], named=[0]).renamed().raw, partition)
    deployment.ledger.poisons.append(Poison(partition, offset, _POISON_KEY, value))

    async def is_quarantined() -> bool:
        rows = await deployment.postgres.run(
            'SELECT 1 FROM watchword.refusals WHERE reason = \'poison\' AND "partition" = $1 AND "offset" = $2',
            partition,
            offset,
        )
        return bool(rows)

    await until(is_quarantined, "the poison is passed over", within_s=60.0)
    return 1


async def _produce_raw(deployment: Deployment, raw: bytes, partition: int) -> int:
    """Produce one batch just as it is, and return its offset."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=deployment.kafka.bootstrap_servers, acks="all", enable_idempotence=False
    )
    await producer.start()
    try:
        builder = producer.create_batch()
        builder.append(timestamp=None, key=b"k", value=b"v")
        builder.close()
        builder._buffer = raw
        sent = await (await producer.send_batch(builder, REQUESTS, partition=partition))
        return int(sent.offset)
    finally:
        await close(producer, patience_s=5)


def _one_broker(deployment: Deployment) -> str | None:
    return None if len(deployment.kafka.nodes) > 1 else "there is one broker"


_KAFKA = frozenset(("kafka",))

FAULTS = (
    Fault("broker killed", kill_broker, _KAFKA, impossible=_one_broker),
    Fault("broker restarted", restart_broker, _KAFKA, impossible=_one_broker),
    Fault("broker stalled", stall_broker, _KAFKA, impossible=_one_broker),
    Fault("partitions added", add_partitions, frozenset(("kafka", "partitions", "group"))),
    Fault("poison record", send_poison, frozenset(("poison", "partitions"))),
)
