"""Feeds the worker from `join.requests`, and commits what is done."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import structlog
from aiokafka import ConsumerRebalanceListener
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from mode import Service

from watchword.handlers.join.records import Incoming
from watchword.streams.worker import consumer as consumers
from watchword.streams.worker import metrics
from watchword.streams.worker.backlog import (
    RECORD_OVERHEAD_BYTES,
    Budget,
    Deliveries,
    Delivery,
)
from watchword.streams.worker.commits import Committer
from watchword.streams.worker.consumer import Consumer, ConsumerFactory, Message
from watchword.streams.worker.exits import ExitCode, Fatal, exit_now
from watchword.streams.worker.options import WorkerLimits
from watchword.streams.worker.prefix import OffsetSkipped, anchor
from watchword.streams.worker.services import WorkerService
from watchword.streams.worker.tenures import Tenure, Tenures
from watchword.streams.worker.unreadable import Fault, Unreadable

_log = structlog.get_logger(__name__)

_HEADER_OVERHEAD_BYTES = 128
"""What a header costs in memory beside its bytes, roughly."""
_POLL_MS = 200
_GREATEST_POLL = 256
_ANCHOR_S = 10.0
_COMMIT_S = 5.0
_LAST_COMMIT_S = 1.0
_CLOSED_GATE_S = 0.2
_STALLED_AFTER_S = 1.0
_SETTLE_SHARE = 0.7
"""Of the time to drain, what batches in flight may take; the rest is for the commit and closing."""
_FIRST_BACKOFF_S = 0.2
_GREATEST_BACKOFF_S = 5.0

Emit = Callable[[Deliveries], Awaitable[None]]
Settle = Callable[[float], Awaitable[bool]]
"""Waits, at most so many seconds, until no batch is in flight; tells whether that came about."""
Problem = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class SourceParts:
    """What the source works with."""

    topic: str
    make_consumer: ConsumerFactory
    budget: Budget
    emit: Emit
    settle: Settle
    gate: Problem
    """While it names a problem nothing is fetched; the partitions are kept."""
    taken_over: Callable[[], None]
    """Hears of it when partitions came, before anything of them is delivered."""
    fatal: Fatal = exit_now


class RequestSource(WorkerService):
    """A consumer of the group around which nothing gets lost.

    What is delivered is compared with what is due (`prefix`); work in memory is bounded; offsets
    are committed every so often, on a revocation and at the end. Errors of Kafka are waited out,
    with another consumer object where the old one is of no use any more.
    """

    def __init__(self, parts: SourceParts, limits: WorkerLimits) -> None:
        """Connect to nothing yet."""
        super().__init__()
        self._parts = parts
        self._limits = limits
        self._tenures = Tenures()
        self._committer = Committer(self._tenures)
        self._consumer: Consumer | None = None
        self._unanchored: set[TopicPartition] = set()
        self._generation = 0
        self._has_joined = False
        self._learns_at: float | None = None
        self._has_left = False
        self._backoff_s = _FIRST_BACKOFF_S
        self._trouble: str | None = "not connected yet"

    def problem(self) -> str | None:
        """Return why no request can arrive now, for the health listener."""
        consumer = self._consumer
        if consumer is None or self._trouble is not None:
            return self._trouble or "not connected"
        if not consumer.partitions_for_topic(self._parts.topic):
            return f"the topic {self._parts.topic} is not known"
        if trouble := consumers.trouble(consumer):
            return trouble
        if not self._has_joined:
            return "waiting for the group"
        if self._unanchored:
            return "waiting for committed offsets"
        return None

    async def on_stop(self) -> None:
        """Let the batches in flight end, commit, and leave; what only waits is not begun."""
        self._tenures.fence()
        limit = self._limits.drain_s * _SETTLE_SHARE
        if not await self._parts.settle(limit):
            _log.warning("batches given up while draining", waited_s=limit)
        if (consumer := self._consumer) is not None:
            await self._committer.commit(consumer, within_s=_LAST_COMMIT_S)
            self._give_up()
            await consumers.close(consumer)
        self._has_left = True

    @Service.task
    async def _consume(self) -> None:
        while not self.should_stop:
            consumer = self._parts.make_consumer()
            try:
                await consumer.start()
                self._consumer, self._trouble = consumer, None
                consumer.subscribe([self._parts.topic], listener=_Rebalances(self))
                await self._pump(consumer)
            except (KafkaError, OSError, TimeoutError) as error:
                self._trouble = f"Kafka: {type(error).__name__}"
                _log.warning("consumer given up", error=type(error).__name__, detail=str(error))
                metrics.CONSUMERS_REPLACED.inc()
            finally:
                # While stopping, `on_stop` needs it.
                if self._consumer is None or not self.should_stop or self._has_left:
                    self._give_up()
                    await consumers.close(consumer)
            await self.sleep(self._backoff_s)
            self._backoff_s = min(self._backoff_s * 2, _GREATEST_BACKOFF_S)

    @Service.task
    async def _commit_now_and_then(self) -> None:
        while not self.should_stop:
            await self.sleep(self._limits.commit_every_s)
            if (consumer := self._consumer) is not None and not self.should_stop:
                await self._committer.commit(consumer, within_s=_COMMIT_S)
                self._measure_lag(consumer)
                self._learn_whether_it_leads(consumer)

    def _measure_lag(self, consumer: Consumer) -> None:
        if self._consumer is consumer:
            held = consumer.assignment()  # aiokafka knows nothing of others
            metrics.LAG.set(self._tenures.lag(lambda p: consumer.highwater(p) if p in held else 0))

    def _learn_whether_it_leads(self, consumer: Consumer) -> None:
        """Do it once for each consumer, when it has had its partitions for a while."""
        if self._learns_at is None:
            if self._has_joined:
                self._learns_at = time.monotonic() + self._limits.metadata_age_s
        elif time.monotonic() >= self._learns_at and self._consumer is consumer:
            self._learns_at = math.inf
            consumers.learn_whether_it_leads(consumer)

    def _give_up(self) -> None:
        self._generation += 1
        self._consumer = None
        self._has_joined = False
        self._learns_at = None
        self._unanchored = set()
        self._tenures.end()

    async def _pump(self, consumer: Consumer) -> None:
        while not self.should_stop:
            if consumers.is_dead(consumer):
                message = "the fetcher has ended"
                raise KafkaError(message)
            if self._unanchored:
                await self._anchor(consumer, frozenset(self._unanchored))
                continue
            if not await self._may_fetch(consumer):
                continue
            try:
                fetched = await consumer.getmany(
                    timeout_ms=_POLL_MS, max_records=min(self._parts.budget.room, _GREATEST_POLL)
                )
            except NoOffsetForPartitionError:
                # A partition that was assigned a moment ago; `_anchor` tells where it begins.
                await asyncio.sleep(0)
                continue
            except OffsetOutOfRangeError as error:
                await self._out_of_range(error)
                continue
            # No await may come between the fetch and this look-up: a partition that is revoked
            # and assigned anew in between has another tenure, which these records are not due in.
            due = [(self._tenures.get(partition), found) for partition, found in fetched.items()]
            for tenure, messages in due:
                metrics.RECEIVED.inc(len(messages))
                if tenure is not None:
                    await self._accept_all(tenure, messages)

    async def _may_fetch(self, consumer: Consumer) -> bool:
        """Tell whether there is room; if there is not, wait a while, and stay in the group."""
        if self._parts.gate() is not None:
            await self._idle(consumer)
            await self.sleep(_CLOSED_GATE_S)
            return False
        if not self._parts.budget.room:
            await self._parts.budget.freed(_STALLED_AFTER_S)
            if not self._parts.budget.room:
                await self._idle(consumer)
                return False
        if paused := consumer.paused():
            consumer.resume(*paused)
        return True

    async def _idle(self, consumer: Consumer) -> None:
        """Turn without fetching, else the client gives the partitions up (`max.poll.interval.ms`)."""
        if assigned := consumer.assignment():
            consumer.pause(*assigned)
            try:
                await consumer.getmany(timeout_ms=0, max_records=1)
            except (NoOffsetForPartitionError, OffsetOutOfRangeError):
                return  # Comes again when there is room.

    async def _accept_all(self, tenure: Tenure, messages: Iterable[Message]) -> None:
        # Revoked while we waited for room: all of it comes again to whoever holds it now.
        if tenure.is_over:
            return
        accepted: list[Delivery] = []
        for message in messages:
            try:
                is_new = tenure.prefix.deliver(message.offset)
            except OffsetSkipped as skipped:
                self._skipped(tenure, skipped)
            if not is_new:
                metrics.REPEATS.inc()
            elif (delivery := self._accepted(tenure, message)) is not None:
                accepted.append(delivery)
        if accepted:
            await self._parts.emit(accepted)

    def _accepted(self, tenure: Tenure, message: Message) -> Delivery | None:
        unreadable = message.value if isinstance(message.value, Unreadable) else None
        if unreadable is not None:
            metrics.UNREADABLE.labels(unreadable.fault.value).inc()
            if unreadable.fault is Fault.CONTROL:
                tenure.prefix.done(message.offset)
                return None
        delivery = Delivery(_incoming(message, unreadable), unreadable, tenure, _size(message))
        self._parts.budget.take(delivery.size)
        return delivery

    def _skipped(self, tenure: Tenure, skipped: OffsetSkipped) -> NoReturn:
        metrics.SKIPS.inc()
        _log.critical(
            "an offset was skipped; nothing more is acknowledged",
            topic=tenure.partition.topic,
            partition=tenure.partition.partition,
            expected=skipped.expected,
            delivered=skipped.delivered,
        )
        self._parts.fatal(ExitCode.OFFSET_SKIPPED)

    async def _anchor(self, consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        """Begin the tenures of newly assigned partitions, at what is committed for them."""
        generation = self._generation
        async with asyncio.timeout(_ANCHOR_S):
            committed = await asyncio.gather(*(consumer.committed(p) for p in partitions))
            starts = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        if generation != self._generation:
            return  # Another rebalance came; what was read may be out of date.
        for partition, offset in zip(partitions, committed, strict=True):
            self._begin(consumer, partition, offset, starts[partition], ends[partition])
        self._unanchored -= partitions

    def _begin(
        self, consumer: Consumer, partition: TopicPartition, committed: int | None, *log: int
    ) -> None:
        start, end = log
        begin = anchor(committed, start, end)
        where = {"topic": partition.topic, "partition": partition.partition, "offset": begin.offset}
        if begin.lost:
            metrics.LOST.inc(begin.lost)
            _log.error("retention removed unjudged requests", lost=begin.lost, **where)
        if begin.truncated:
            metrics.TRUNCATIONS.inc()
            _log.error("the log ends below the committed offset", committed=committed, **where)
        consumer.seek(partition, begin.offset)
        self._tenures.begin(partition, begin.offset)
        _log.info("partition begun", committed=committed, **where)

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        """Begin anew: retention has passed us, or the log was truncated; `anchor` tells which."""
        offsets: Mapping[TopicPartition, int] = error.args[0]
        _log.error("an offset to be fetched is not in the log", partitions=len(offsets))
        self._tenures.end(offsets)
        self._unanchored |= set(offsets)
        await self.sleep(_CLOSED_GATE_S)

    async def revoked(self) -> None:
        """Give up all partitions (the protocol is eager): finish what is in flight, commit."""
        self._generation += 1
        self._has_joined = False
        self._unanchored = set()
        self._tenures.fence()
        await self._parts.settle(self._limits.revoke_s)
        if (consumer := self._consumer) is not None:
            await self._committer.commit(consumer, within_s=_LAST_COMMIT_S)
        self._tenures.end()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over partitions. The pump anchors them: here the group's heartbeats stand still."""
        metrics.REBALANCES.inc()
        self._parts.taken_over()
        self._generation += 1
        self._unanchored = set(partitions)
        self._has_joined = True
        self._backoff_s = _FIRST_BACKOFF_S
        _log.info("partitions assigned", count=len(self._unanchored))


class _Rebalances(ConsumerRebalanceListener):
    """Passes the group's news on."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source

    # aiokafka awaits what these return, though its base class does not say so.

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        del revoked  # All of them.
        await self._source.revoked()

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, assigned: Iterable[TopicPartition]
    ) -> None:
        self._source.assigned(assigned)


def _incoming(message: Message, unreadable: Unreadable | None) -> Incoming:
    return Incoming(
        value=None if unreadable is not None else message.value,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        headers=tuple(message.headers),
    )


def _size(message: Message) -> int:
    size = RECORD_OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += _HEADER_OVERHEAD_BYTES + len(name) + len(value or b"")
    return size
