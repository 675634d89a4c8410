"""The worker's process: what is started in which order, signals, and how it ends."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import FrameType
from typing import TypeVar

import structlog
from mode import Service

from watchword.streams.cycles import spare_the_collector
from watchword.streams.health import Health, HealthListener
from watchword.streams.worker import metrics
from watchword.streams.worker.answers import Answers, producer_factory
from watchword.streams.worker.app import build_app
from watchword.streams.worker.backlog import Backlog, Budget
from watchword.streams.worker.batches import Batches, BatchParts
from watchword.streams.worker.consumer import consumer_factory
from watchword.streams.worker.exits import ExitCode, Fatal, exit_now
from watchword.streams.worker.memory import limit_memory
from watchword.streams.worker.options import (
    GREATEST_RECORD_BYTES,
    Judging,
    ServiceFactory,
    WorkerOptions,
)
from watchword.streams.worker.services import until_ended
from watchword.streams.worker.source import RequestSource, SourceParts
from watchword.streams.worker.watchdog import Watchdog

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_worker(options: WorkerOptions, service_factory: ServiceFactory) -> int:
    """Verify requests until SIGTERM or SIGINT; return the exit status.

    The first signal drains: nothing more is fetched, what is in flight ends, its offsets are
    committed, all within `limits.drain_s`. The second one ends the process at once, which is as
    safe as a SIGKILL: what was not acknowledged comes again. Call it in the main thread.

    Raises:
        ConfigRefused: a certificate or key file for Kafka cannot be used.
        OSError: the health listener's address is taken.
        WrongVersion: a library is not the one that is pinned.
    """
    if options.limits.memory_bytes is not None:
        bound = limit_memory(options.limits.memory_bytes)
        _log.info("memory is bounded", bytes=bound)
    return asyncio.run(_until_a_signal(options, service_factory))


async def _until_a_signal(options: WorkerOptions, service_factory: ServiceFactory) -> int:
    stopping = asyncio.Event()
    health = Health()
    signals = _Signals(asyncio.get_running_loop(), stopping, health, options.limits.drain_s)
    # Not the loop's own handlers: those do not run while the loop is blocked.
    before = {number: signal.signal(number, signals.arrived) for number in _SIGNALS}
    listener = HealthListener(health, options.health_host, options.health_port)
    try:
        await listener.start()
        return await _serve(options, service_factory, health, stopping)
    finally:
        await listener.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Signals:
    """The first signal drains, the second one ends the process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event,
        health: Health,
        drain_s: float,
    ) -> None:
        self._loop = loop
        self._stopping = stopping
        self._health = health
        self._drain_s = drain_s
        self._is_first = True

    def arrived(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal, between any two instructions of the main thread: log and flush nothing."""
        if not self._is_first:
            os._exit(128 + number)
        self._is_first = False
        _end_after(self._drain_s)
        self._loop.call_soon_threadsafe(self._drain, number)

    def _drain(self, number: int) -> None:
        _log.info("draining", signal=signal.Signals(number).name)
        self._health.stopping = True
        self._stopping.set()


def _end_after(seconds: float) -> None:
    """End the process when its time is over: from a thread, and without a word.

    Whatever keeps the process may have blocked the loop, or hold the lock of a log.
    """
    overdue = threading.Timer(seconds, os._exit, (ExitCode.DRAIN_OVERDUE,))
    overdue.daemon = True
    overdue.start()


async def _serve(
    options: WorkerOptions,
    service_factory: ServiceFactory,
    health: Health,
    stopping: asyncio.Event,
) -> int:
    """Open the service, work until a signal or a crash, and close everything again."""
    health.add_check("service", lambda: "starting")
    async with AsyncExitStack() as stack:
        opening = stack.enter_async_context(service_factory())
        judging = await _unless(stopping, opening)
        if judging is None:
            return ExitCode.OK
        app = assemble(options, judging, health)
        watchdog = Watchdog(options.limits.stall_s)
        watchdog.start()
        stack.callback(watchdog.stop)
        await app.start()
        spare_the_collector()
        await _unless(stopping, until_ended(app))
        metrics.DRAIN_SECONDS.set_function(partial(_since, time.monotonic()))
        if app.crashed:
            _log.critical("worker crashed", reason=type(app.crash_reason).__name__)
            _end_after(options.limits.drain_s)
        began = time.monotonic()
        await app.stop()
        _log.info("drained", seconds=round(_since(began), 3))
        return ExitCode.CRASHED if app.crashed else ExitCode.OK


def assemble(
    options: WorkerOptions, judging: Judging, health: Health, *, fatal: Fatal = exit_now
) -> Service:
    """Put the parts together; what is returned is not started.

    They stop in the reverse order of their start: the source drains first.

    Args:
        options: What to start with; the health listener is not part of this.
        judging: The join service, open.
        health: Gets the worker's checks.
        fatal: Ends the process when nothing more may be acknowledged; it must not return.

    Raises:
        WrongVersion: a library is not the one that is pinned.
    """
    limits = options.limits
    budget = Budget(limits.held_records, limits.held_bytes, GREATEST_RECORD_BYTES)
    backlog = Backlog(budget)
    answers = Answers(producer_factory(options), limits.send_deadline_s)
    batches = Batches(
        BatchParts(backlog, judging.service, answers, options.topics, fatal, judging.tracing),
        limits,
    )
    app = build_app(options.group, backlog.put, limits.held_records)
    source = RequestSource(
        SourceParts(
            topic=options.topics.requests,
            make_consumer=consumer_factory(options),
            budget=budget,
            emit=app.emit,
            settle=batches.settle,
            gate=judging.problem,
            taken_over=judging.service.taken_over,
            fatal=fatal,
        ),
        limits,
    )
    app.add(answers, batches, source)
    health.add_check("consumer", source.problem)
    health.add_check("producer", answers.problem)
    health.add_check("service", judging.problem)
    health.add_check("clock", partial(_clock_problem, judging.clock_skew, limits.clock_skew_s))
    return app.service


def _clock_problem(skew: Callable[[], float | None], allowed_s: float) -> str | None:
    seconds = skew()
    if seconds is None:
        return "not compared with PostgreSQL's clock yet"
    # Written so that not-a-number is a problem.
    return None if abs(seconds) <= allowed_s else f"{seconds:+.1f} s off PostgreSQL's clock"


def _since(began: float) -> float:
    return time.monotonic() - began


async def _unless(stopping: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Await something, but cancel it when the process is to stop; None then."""
    working = asyncio.ensure_future(work)
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait((working, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if working.done():
        return working.result()
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    return None
