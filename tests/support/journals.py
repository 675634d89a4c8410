"""Journal entries to publish, and the records that came of them."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition

from watchword.handlers.journal import Entry, new_event_id
from watchword.handlers.store import journal
from watchword.handlers.store.connection import Connection, Database

TOPIC = "node.events"


def event(
    key: str,
    number: int = 0,
    *,
    topic: str | None = TOPIC,
    filler: int = 0,
    headers: str | None = None,
) -> Entry:
    """Return an entry: `number` is the version of what `key` names, `filler` adds bytes to the value."""
    event_id = new_event_id()
    return Entry(
        event_id=event_id,
        event_class="domain",
        topic=topic,
        type="node.joined",
        key=key.encode(),
        headers=headers or json.dumps({"ce_id": str(event_id), "ce_type": "node.joined"}),
        value=json.dumps({"n": number, "filler": "x" * filler}).encode(),
        private=None,
        occurred_at=datetime.now(UTC),
    )


async def commit(database: Database, entries: Sequence[Entry]) -> None:
    """Append the entries in a transaction of their own."""
    async with database.transaction() as connection:
        await journal.append(connection, entries)


async def committed_ids(connection: Connection) -> set[str]:
    """Return the ids of all events that should be published."""
    rows = await connection.fetch(
        "SELECT event_id::text AS id FROM journal WHERE topic IS NOT NULL"
    )
    return {row["id"] for row in rows}


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    event_id: str
    number: int
    timestamp_ms: int


class Reader:
    """Reads topics from their beginning, and keeps what it has read, duplicates and all."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        """Connect with `start`."""
        self.records: list[Record] = []
        self._topics = topics
        self._consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")

    async def start(self) -> None:
        """Read all partitions there are, without a group."""
        await self._consumer.start()
        partitions: list[TopicPartition] = []
        for topic in self._topics:
            while not (found := self._consumer.partitions_for_topic(topic)):
                self._consumer.assign([TopicPartition(topic, 0)])
                await self._consumer._client.add_topic(topic)
                await asyncio.sleep(0.05)
            partitions += [TopicPartition(topic, number) for number in sorted(found)]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_beginning(*partitions)

    async def stop(self) -> None:
        """Hang up."""
        await self._consumer.stop()

    async def read(self) -> None:
        """Take what is there, or comes within a moment."""
        for found in (await self._consumer.getmany(timeout_ms=100)).values():
            for one in found:
                headers = dict(one.headers)
                self.records.append(
                    Record(
                        one.topic,
                        one.partition,
                        one.offset,
                        one.key or b"",
                        headers["ce_id"].decode(),
                        json.loads(one.value or b"{}").get("n", -1),
                        one.timestamp,
                    )
                )

    async def read_until(self, ids: set[str], *, within_s: float = 20.0) -> None:
        """Read until all of these events were seen; fail the test if they are not in time."""
        deadline = time.monotonic() + within_s
        while missing := ids - self.ids():
            assert time.monotonic() < deadline, f"{len(missing)} of {len(ids)} events are missing"
            await self.read()

    async def read_to_the_end(self) -> None:
        """Read all that is there now."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        async with asyncio.timeout(10):
            while any([await self._consumer.position(at) < end for at, end in ends.items()]):
                await self.read()

    def ids(self) -> set[str]:
        """Return the ids seen."""
        return {record.event_id for record in self.records}

    def first_numbers(self, key: str) -> list[int]:
        """Return the numbers of a key's events in the order in which each was first seen."""
        seen: dict[str, int] = {}
        for record in self.records:
            if record.key == key.encode():
                seen.setdefault(record.event_id, record.number)
        return list(seen.values())
