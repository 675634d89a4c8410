"""Following a topic to its end and on: all partitions, no consumer group, nothing committed.

Every replica reads everything, so any of them can answer. Delivery is in order within a
partition, each record once as long as the process lives. A record that the Kafka client cannot
parse (a header name that is not UTF-8 is enough) is passed over by its coordinates: whoever may
write to the topic must not be able to stop everybody who reads it.
"""

import asyncio
import random
import time
from collections.abc import Callable

import structlog
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition

from watchword.streams.gateway import metrics
from watchword.streams.gateway.kafka_ports import Consumer, Record, new_consumer
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.kafka_closing import close

_log = structlog.get_logger(__name__)

_PROBE_S = 2.0
_PROBE_PATIENCE_S = 5.0
_START_PATIENCE_S = 10.0
_REQUEST_PATIENCE_S = 5.0
_STOP_PATIENCE_S = 1.0
_STALLED_S = 30.0
_BACKOFF_S = (0.2, 2.0)
_FETCH_BYTES = 2 * 1024 * 1024

Deliver = Callable[[Record], None]


class Tail:
    """Follows one topic for as long as `run` runs."""

    def __init__(
        self, connection: KafkaConnection, topic: str, deliver: Deliver, *, lookback_s: float | None
    ) -> None:
        """Begin `lookback_s` ago, by the records' timestamps; None begins at the beginning.

        `deliver` is called on the event loop, must not block, and must not raise.
        """
        self.topic = topic
        self._connection = connection
        self._deliver = deliver
        self._lookback_s = lookback_s
        self._next: dict[TopicPartition, int] = {}
        self._has_caught_up = False
        self._problem: str | None = "not read yet"
        self._moved_at = 0.0

    def problem(self) -> str | None:
        """Return why answers from here may be missing, or None; for the readiness."""
        return self._problem

    async def run(self) -> None:
        """Follow the topic until cancelled, through every outage of Kafka."""
        while True:
            try:
                await self._follow()
            except* (KafkaError, OSError, TimeoutError, IllegalStateError) as errors:
                self._say(type(errors.exceptions[0]).__name__)
            await asyncio.sleep(random.uniform(*_BACKOFF_S))  # noqa: S311 - jitter

    async def _follow(self) -> None:
        consumer = new_consumer(
            self._connection, self.topic, request_s=_REQUEST_PATIENCE_S, fetch_bytes=_FETCH_BYTES
        )
        try:
            async with asyncio.timeout(_START_PATIENCE_S):
                await consumer.start()
                await self._seek(consumer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(consumer))
                tasks.create_task(self._probe(consumer))
        finally:
            await close(consumer, patience_s=_STOP_PATIENCE_S)

    async def _seek(self, consumer: Consumer) -> None:
        """Go on where we were; a partition that was never read begins at the lookback."""
        new = [tp for tp in consumer.assignment() if tp not in self._next]
        if self._lookback_s is not None and new:
            from_ms = int((time.time() - self._lookback_s) * 1000)
            found = await consumer.offsets_for_times(dict.fromkeys(new, from_ms))
            ends = await consumer.end_offsets(new)
            for tp in new:
                at = found.get(tp)
                self._next[tp] = ends[tp] if at is None else at.offset
        for tp in consumer.assignment() & self._next.keys():
            consumer.seek(tp, self._next[tp])
        self._moved_at = time.monotonic()

    async def _read(self, consumer: Consumer) -> None:
        while True:
            try:
                record = await consumer.getone()
            except KafkaError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the parser below raises
                await self._pass_over(consumer, error)
            else:
                self._take(record)

    def _take(self, record: Record) -> None:
        tp = TopicPartition(record.topic, record.partition)
        # A partition that was added makes the client read the others again from their beginning.
        if record.offset >= self._next.get(tp, 0):
            self._next[tp] = record.offset + 1
            self._moved_at = time.monotonic()
            self._deliver(record)

    async def _pass_over(self, consumer: Consumer, error: Exception) -> None:
        """Find the partition whose next record does not parse, and go on behind that record.

        The error does not say where it is from, and parsing does not move the position, so each
        partition that has more is asked alone.
        """
        for tp in consumer.assignment():
            position = await consumer.position(tp)
            if position >= (consumer.highwater(tp) or 0):
                continue
            try:
                async with asyncio.timeout(_PROBE_PATIENCE_S):
                    record = await consumer.getone(tp)
            except (KafkaError, TimeoutError):
                continue
            except Exception:  # noqa: BLE001 - it is this one
                position = await consumer.position(tp)
                self._next[tp] = position + 1
                self._moved_at = time.monotonic()
                consumer.seek(tp, position + 1)
                metrics.PASSED_OVER.labels(self.topic).inc()
                _log.error(
                    "record passed over that cannot be parsed",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=position,
                    error=type(error).__name__,
                )
            else:
                self._take(record)

    async def _probe(self, consumer: Consumer) -> None:
        """Ask the brokers where the ends are: it tells how far behind we are, and that they live."""
        shorter: set[TopicPartition] = set()
        while True:
            # Records go on coming while the brokers answer: their ends are held against what was
            # read before they were asked.
            read = dict(self._next)
            async with asyncio.timeout(_PROBE_PATIENCE_S):
                ends = await consumer.end_offsets(list(consumer.assignment()))
                behind = 0
                for tp, end in ends.items():
                    behind += max(0, end - await consumer.position(tp))
            suspects = {tp for tp, end in ends.items() if end < read.get(tp, 0)}
            # Twice in a row, for a broker that has just begun to lead may be a little behind.
            for tp in suspects & shorter:
                # The topic was made anew, or a leader lost what it had acknowledged.
                _log.warning("topic is shorter than it was", topic=tp.topic, end=ends[tp])
                self._next[tp] = 0
                consumer.seek(tp, 0)
            shorter = suspects - shorter
            metrics.TAIL_BEHIND.labels(self.topic).set(behind)
            if behind == 0:
                self._has_caught_up = True
                self._moved_at = time.monotonic()
            elif time.monotonic() - self._moved_at > _STALLED_S:
                message = "records are there, and none arrives"
                raise TimeoutError(message)
            self._say(None if self._has_caught_up else "reads what is there already")
            await asyncio.sleep(_PROBE_S if self._has_caught_up else _PROBE_S / 20)

    def _say(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            if problem is None:
                _log.info("topic followed", topic=self.topic)
            else:
                _log.warning("topic not followed", topic=self.topic, problem=problem)
