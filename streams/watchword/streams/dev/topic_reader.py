"""Reads topics as any other consumer of them would: assigned partitions, no group."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

_Client = Any
"""A consumer of aiokafka, which has no types of its own."""

_POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Read:
    """One record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


class TopicReader:
    """Reads some topics, from where they ended or from where one is told."""

    def __init__(self, consumer: _Client, partitions: Sequence[TopicPartition]) -> None:
        """Take a started consumer with its assignment."""
        self._consumer = consumer
        self._partitions = partitions

    async def read(self) -> list[Read]:
        """Return what has come, maybe nothing."""
        fetched: dict[Any, list[Any]] = await self._consumer.getmany(timeout_ms=_POLL_MS)
        return [
            Read(
                record.topic,
                record.partition,
                record.offset,
                record.key,
                record.value,
                {name: value.decode(errors="replace") for name, value in record.headers},
            )
            for records in fetched.values()
            for record in records
        ]

    async def read_to_the_end(self, *, within_s: float) -> list[Read]:
        """Return everything up to where the topics end now; raises `TimeoutError`."""
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets(self._partitions)
        deadline = time.monotonic() + within_s
        found: list[Read] = []
        for partition, end in ends.items():
            while await self._consumer.position(partition) < end:
                if time.monotonic() > deadline:
                    raise TimeoutError
                found += await self.read()
        return found

    async def ends(self) -> dict[str, dict[int, int]]:
        """Return where the topics end now."""
        ends: dict[Any, int] = await self._consumer.end_offsets(self._partitions)
        found: dict[str, dict[int, int]] = {}
        for partition, end in ends.items():
            found.setdefault(partition.topic, {})[partition.partition] = end
        return found


@asynccontextmanager
async def reading(
    bootstrap_servers: str,
    topics: Sequence[str],
    starts: dict[str, dict[int, int]] | None = None,
) -> AsyncGenerator[TopicReader]:
    """Give a reader of these topics, which begins at `starts`, or at their ends."""
    consumer: _Client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        partitions = await _partitions(consumer, topics)
        consumer.assign(partitions)
        if starts is None:
            await consumer.seek_to_end(*partitions)
        else:
            for partition in partitions:
                consumer.seek(partition, starts[partition.topic][partition.partition])
        yield TopicReader(consumer, partitions)
    finally:
        await consumer.stop()


async def _partitions(consumer: _Client, topics: Sequence[str]) -> list[TopicPartition]:
    cluster: Any = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - the only way without a subscription
    return [
        TopicPartition(topic, number)
        for topic in topics
        for number in sorted(cluster.partitions_for_topic(topic) or ())
    ]
