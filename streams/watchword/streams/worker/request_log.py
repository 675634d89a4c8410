"""Requests as Kafka has them, found again: by their place, by what names them, or by time. Without a group."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, cast

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from watchword.handlers.errors import Unavailable
from watchword.handlers.join.records import Incoming
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.kafka_closing import close
from watchword.streams.worker.unreadable import Unreadable

_POLL_MS = 500
_CLOSE_S = 2.0
_MOST_READ = 2_000_000
"""Records that a search looks at."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A request on its topic, and when Kafka took it."""

    incoming: Incoming
    sent_at: datetime


class RequestLog:
    """Reads `join.requests`; each search is a client of its own."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Connect with the first search."""
        self._kafka = kafka
        self._topic = topic

    async def at(self, topic: str, partition: int, offset: int) -> Kept | None:
        """Return the record at a place; None if it is not there any more."""
        if topic != self._topic or offset < 0:
            return None
        async with self._client() as client:
            place = TopicPartition(topic, partition)
            if partition not in await _partitions(client, topic):
                return None
            client.assign([place])
            begins, ends = (
                await client.beginning_offsets([place]),
                await client.end_offsets([place]),
            )
            if not begins[place] <= offset < ends[place]:
                return None
            client.seek(place, offset)
            async with aclosing(_read(client, {place: offset + 1})) as found:
                async for kept in found:
                    if kept.incoming.offset == offset:
                        return kept
        return None

    async def find(
        self,
        *,
        digest: bytes | None = None,
        request_id: str | None = None,
        near: datetime | None = None,
    ) -> Kept | None:
        """Return the first record of these bytes, or with this id; `near` is when it was judged, if that is known.

        Raises:
            Unavailable: Kafka is away.
        """

        def is_it(value: bytes) -> bool:
            if digest is not None:
                return sha256(value).digest() == digest
            return request_id is not None and _id_of(value) == request_id

        # It was judged soon after it came, and in an outage long after.
        starts = [datetime.fromtimestamp(0, UTC)]
        if near is not None:
            starts.insert(0, near - timedelta(minutes=10))
        for start in starts:
            async with aclosing(self.since(start, is_it)) as found:
                async for kept in found:
                    return kept
        return None

    async def since(
        self,
        start: datetime,
        wanted: Callable[[bytes], bool] = lambda _: True,
        *,
        until: datetime | None = None,
    ) -> AsyncGenerator[Kept]:
        """Yield the records from a time up to another one, or to where the topic ends now, partition by partition."""
        async with self._client() as client:
            places = [
                TopicPartition(self._topic, n) for n in await _partitions(client, self._topic)
            ]
            if not places:
                return
            client.assign(places)
            ends = await client.end_offsets(places)
            first = await client.offsets_for_times(dict.fromkeys(places, _millis(start)))
            if until is not None:
                last = await client.offsets_for_times(dict.fromkeys(places, _millis(until)))
                ends |= {place: found.offset for place, found in last.items() if found is not None}
            upto: dict[Any, int] = {}
            for place in places:
                begin = first.get(place)
                if begin is None or begin.offset >= ends[place]:
                    client.pause(place)
                    continue
                client.seek(place, begin.offset)
                upto[place] = ends[place]
            async with aclosing(_read(client, upto)) as found:
                async for kept in found:
                    if kept.incoming.value is not None and wanted(kept.incoming.value):
                        yield kept

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Any]:
        """Give a started client, which has no types of its own."""
        client: Any = AIOKafkaConsumer(
            **self._kafka.client_options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=16 * 1024 * 1024,
        )
        try:
            await client.start()
            yield client
        except KafkaError as error:
            message = f"Kafka: {type(error).__name__}"
            raise Unavailable(message) from error
        finally:
            await close(client, patience_s=_CLOSE_S)


def _millis(moment: datetime) -> int:
    return max(0, (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))


async def _partitions(client: Any, topic: str) -> list[int]:  # noqa: ANN401 - aiokafka has no types
    cluster = await client._client.fetch_all_metadata()  # noqa: SLF001 - the only way without a subscription
    return sorted(cluster.partitions_for_topic(topic) or ())


async def _read(client: Any, upto: dict[Any, int]) -> AsyncGenerator[Kept]:  # noqa: ANN401 - as above
    """Yield records until each partition has come to its end."""
    left = dict(upto)
    count = 0
    while left and count < _MOST_READ:
        fetched = await client.getmany(*left, timeout_ms=_POLL_MS)
        for place, records in fetched.items():
            count += len(records)
            for record in records:
                if record.offset < upto[place]:
                    yield _kept(record)
        for place in list(left):
            if await client.position(place) >= upto[place]:
                del left[place]


def _kept(record: Any) -> Kept:  # noqa: ANN401 - as above
    # What the parser could not read has no bytes to judge.
    value = record.value
    if not isinstance(value, bytes) or isinstance(value, Unreadable):
        value = None
    headers: Iterable[tuple[str, bytes | None]] = record.headers or ()
    incoming = Incoming(
        value, record.topic, record.partition, record.offset, record.key, tuple(headers)
    )
    return Kept(incoming, datetime.fromtimestamp(record.timestamp / 1000, UTC))


def _id_of(value: bytes) -> str | None:
    try:
        said = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    found = cast("dict[str, Any]", said).get("requestId") if isinstance(said, dict) else None
    return found if isinstance(found, str) else None
