"""Has requests judged in batches, and answers them before they count as done."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NoReturn

import structlog

from watchword.handlers.errors import OutOfMemory, WatchwordError
from watchword.handlers.join.records import Answer, JoinService
from watchword.streams import failpoints
from watchword.streams.worker import metrics
from watchword.streams.worker.answers import Answers
from watchword.streams.worker.backlog import Backlog, Delivery
from watchword.streams.worker.exits import ExitCode, Fatal, exit_now
from watchword.streams.worker.options import WorkerLimits, WorkerTopics
from watchword.streams.worker.outgoing import POISON, Outgoing, answer_of, dead_letter_of
from watchword.streams.worker.services import WorkerService
from watchword.streams.worker.tracing import BatchTracing

_log = structlog.get_logger(__name__)


class WrongAnswers(WatchwordError):
    """The join service did not answer each request once."""


@dataclass(frozen=True, slots=True)
class BatchParts:
    """What batches work with."""

    backlog: Backlog
    service: JoinService
    answers: Answers
    topics: WorkerTopics
    fatal: Fatal = exit_now
    tracing: BatchTracing | None = None


class Batches(WorkerService):
    """A few lanes, each of which takes what has queued up, over all partitions.

    There is no timer: a lone request is a batch at once, and while all lanes are busy the next
    batch grows. An exception of the service is a bug; it ends the process, and what it was about
    stays unacknowledged.
    """

    def __init__(self, parts: BatchParts, limits: WorkerLimits) -> None:
        """Begin nothing yet."""
        super().__init__()
        self._parts = parts
        self._limits = limits
        self._in_flight = 0
        self._settled = asyncio.Event()
        self._settled.set()

    async def on_start(self) -> None:
        """Open the lanes."""
        for _ in range(self._limits.batches_in_flight):
            self.run_beside(self._lane())

    async def settle(self, within_s: float) -> bool:
        """Wait until no batch is in flight; tell whether that came about in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def _lane(self) -> None:
        backlog, limits = self._parts.backlog, self._limits
        while not self.should_stop:
            batch = await backlog.take(limits.batch_records, limits.batch_bytes)
            self._begin(batch)
            began = time.perf_counter()
            try:
                with self._followed(batch):
                    await self._carry_out(batch)
            except MemoryError as error:
                self._out_of_memory(error, batch)
            except BaseException as error:
                for delivery in batch:
                    backlog.abandon(delivery)
                if not isinstance(error, asyncio.CancelledError):
                    _log.critical("batch failed", batch=_coordinates(batch), exc_info=error)
                raise
            finally:
                self._end()
            metrics.BATCH_SECONDS.observe(time.perf_counter() - began)

    def _begin(self, batch: Sequence[Delivery]) -> None:
        metrics.BATCH_SIZE.observe(len(batch))
        self._in_flight += 1
        metrics.IN_FLIGHT.set(self._in_flight)
        self._settled.clear()

    def _end(self) -> None:
        self._in_flight -= 1
        metrics.IN_FLIGHT.set(self._in_flight)
        if not self._in_flight:
            self._settled.set()

    def _out_of_memory(self, error: MemoryError, batch: Sequence[Delivery]) -> NoReturn:
        """End the process at once: what its tasks still did might acknowledge something."""
        with suppress(Exception):
            _log.critical(
                "out of memory",
                attestor=error.attestor if isinstance(error, OutOfMemory) else None,
                where=error.where if isinstance(error, OutOfMemory) else None,
                batch=_coordinates(batch),
            )
        self._parts.fatal(ExitCode.OUT_OF_MEMORY)

    async def _carry_out(self, batch: Sequence[Delivery]) -> None:
        """Judge, answer, wait for the acknowledgements, mark as done: in this order."""
        outgoing = await self._judge(batch)
        failpoints.hit("after-commit-before-response")
        with self._sending(outgoing):
            await self._parts.answers.send(outgoing)
        failpoints.hit("after-response-before-offset")
        for delivery in batch:
            self._parts.backlog.finish(delivery)

    def _followed(self, batch: Sequence[Delivery]) -> AbstractContextManager[None]:
        tracing = self._parts.tracing
        return nullcontext() if tracing is None else tracing.batch(batch)

    def _sending(self, records: Sequence[Outgoing]) -> AbstractContextManager[None]:
        tracing = self._parts.tracing
        return nullcontext() if tracing is None else tracing.sending(len(records))

    async def _judge(self, batch: Sequence[Delivery]) -> list[Outgoing]:
        readable = [d.incoming for d in batch if d.unreadable is None]
        answers = await self._parts.service.judge(readable) if readable else []
        if len(answers) != len(readable):
            message = f"{len(answers)} answers to {len(readable)} requests"
            raise WrongAnswers(message)
        left = iter(answers)
        outgoing: list[Outgoing] = []
        for delivery in batch:
            if delivery.unreadable is None:
                outgoing += self._sent_for(delivery, next(left))
            else:
                outgoing.append(await self._quarantine(delivery))
        return outgoing

    def _sent_for(self, delivery: Delivery, answer: Answer) -> list[Outgoing]:
        topics = self._parts.topics
        sent = [answer_of(answer, topics)]
        if answer.dead_letter is not None:
            sent.append(dead_letter_of(delivery.incoming, answer.dead_letter, topics))
        return sent

    async def _quarantine(self, delivery: Delivery) -> Outgoing:
        incoming = delivery.incoming
        _log.warning(
            "record quarantined",
            topic=incoming.topic,
            partition=incoming.partition,
            offset=incoming.offset,
            fault=delivery.unreadable and delivery.unreadable.fault.value,
        )
        await self._parts.service.quarantine(incoming, POISON)
        return dead_letter_of(incoming, POISON, self._parts.topics, delivery.unreadable)


def _coordinates(batch: Sequence[Delivery]) -> list[str]:
    return [f"{d.incoming.topic}/{d.incoming.partition}/{d.incoming.offset}" for d in batch]
