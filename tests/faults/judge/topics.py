"""Reads a topic from its start to its end with a plain consumer."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

_PATIENCE_S = 60.0
"""Until the next records, or any other word of Kafka's."""

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


@dataclass(frozen=True, slots=True)
class Taken:
    """A record of `join.requests` without its bytes, of which there would be too many to keep."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    digest: bytes
    """The SHA-256 of its value, which names the request everywhere."""

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return what is kept of a record."""
        return cls(
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            sha256(record.value or b"").digest(),
        )

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"{REQUESTS}/{self.partition}/{self.offset}"


async def read_topic(bootstrap_servers: str, topic: str) -> list[Record]:
    """Return every record of a topic at once; see `pieces_of`."""
    found: list[Record] = []
    async with aclosing(pieces_of(bootstrap_servers, topic)) as pieces:
        async for piece in pieces:
            found += piece
    return found


async def pieces_of(
    bootstrap_servers: str, topic: str, *, skip: Iterable[tuple[int, int]] = ()
) -> AsyncGenerator[list[Record]]:
    """Yield every record of a topic, by partition and offset, some MiB at a time.

    `skip` are (partition, offset) of records that no client can parse, each alone in its batch.

    Raises:
        TimeoutError: nothing more came, and the end was not reached.
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
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await consumer.start()
            numbers = await partitions_of(bootstrap_servers, [topic])
        for number in range(numbers[topic]):
            stretch = _pieces(consumer, TopicPartition(topic, number), sorted(poisons[number]))
            async with aclosing(stretch) as pieces:
                async for piece in pieces:
                    yield piece
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


async def _pieces(
    consumer: Any,  # noqa: ANN401 - aiokafka has few types
    partition: TopicPartition,
    poisons: list[int],
) -> AsyncGenerator[list[Record]]:
    """Read one partition, in stretches between poisons.

    Where there are poisons it goes one record at a time, because the client parses a record when it
    hands it out, and hands nothing out any more after one that it cannot parse.
    """
    async with asyncio.timeout(_PATIENCE_S):
        consumer.assign([partition])
        begin = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
    for stop in (*(offset for offset in poisons if begin <= offset < end), end):
        position = begin
        consumer.seek(partition, position)
        while position < stop:
            before, found = position, list[Record]()
            async with asyncio.timeout(_PATIENCE_S):
                while position == before:
                    fetched = await consumer.getmany(
                        partition, timeout_ms=500, max_records=1 if poisons else None
                    )
                    found += [_record(m) for m in fetched.get(partition, ()) if m.offset < stop]
                    position = await consumer.position(partition)
            yield found
        begin = stop + 1


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
