"""Reads a topic from its start to its end with a plain consumer."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

_DEADLINE_S = 60.0

REQUESTS = "join.requests"
RESPONSES = "join.responses"
NODE_EVENTS = "node.events"
REFUSED = "security.join.refused"
DEAD_LETTERS = "join.requests.dlq"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it stands in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False, default=())

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"{self.topic}/{self.partition}/{self.offset}"


async def read_topic(
    bootstrap_servers: str, topic: str, *, skip: Iterable[tuple[int, int]] = ()
) -> list[Record]:
    """Return every record of a topic, by partition and offset.

    `skip` are (partition, offset) of records that no client can parse, each alone in its batch.

    Raises:
        TimeoutError: the end was not reached in time.
    """
    poisons: dict[int, list[int]] = defaultdict(list)
    for partition, offset in skip:
        poisons[partition].append(offset)
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    async with asyncio.timeout(_DEADLINE_S):
        await consumer.start()
        try:
            numbers = await partitions_of(bootstrap_servers, [topic])
            found: list[Record] = []
            for number in range(numbers[topic]):
                found += await _read_partition(
                    consumer, TopicPartition(topic, number), sorted(poisons[number])
                )
            return found
        finally:
            await consumer.stop()


async def partitions_of(bootstrap_servers: str, topics: Iterable[str]) -> dict[str, int]:
    """Return how many partitions each topic has."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        described = await admin.describe_topics(list(topics))
    finally:
        await admin.close()
    return {topic["topic"]: len(topic["partitions"]) for topic in described}


async def _read_partition(
    consumer: Any,  # noqa: ANN401 - aiokafka has few types
    partition: TopicPartition,
    poisons: list[int],
) -> list[Record]:
    """Read one partition, in stretches between poisons.

    Where there are poisons it goes one record at a time, because the client parses a record when it
    hands it out, and hands nothing out any more after one that it cannot parse.
    """
    consumer.assign([partition])
    begin = (await consumer.beginning_offsets([partition]))[partition]
    end = (await consumer.end_offsets([partition]))[partition]
    found: list[Record] = []
    for stop in (*(offset for offset in poisons if begin <= offset < end), end):
        position = begin
        consumer.seek(partition, position)
        while position < stop:
            fetched = await consumer.getmany(
                partition, timeout_ms=500, max_records=1 if poisons else None
            )
            found += [_record(m) for m in fetched.get(partition, ()) if m.offset < stop]
            position = await consumer.position(partition)
        begin = stop + 1
    return found


def _record(message: Any) -> Record:  # noqa: ANN401 - aiokafka has few types
    return Record(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        tuple(cast("list[tuple[str, bytes | None]]", message.headers)),
    )
