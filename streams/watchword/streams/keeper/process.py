"""The keeper as a process: it waits out what is away, says why it is not ready, and stops on a signal."""

import asyncio
import contextlib
import random

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.streams.keeper.keeper import Keeper
from watchword.streams.keeper.options import KeeperOptions
from watchword.streams.lifecycle import living

_log = structlog.get_logger(__name__)

_STEP_GRACE_S = 1.0
_LEAVE_S = 0.6
_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 5.0


class Problems:
    """Why the keeper does not work; read by the health checks. Who stands by is ready."""

    def __init__(self, options: KeeperOptions, keeper: Keeper) -> None:
        """Add the checks."""
        self.store: str | None = "no step has been done yet"
        self._keeper = keeper
        self._alarm_days = options.partition_alarm_days
        options.lifecycle.health.add_check("postgresql", lambda: self.store)
        options.lifecycle.health.add_check("partitions", self._of_partitions)

    def _of_partitions(self) -> str | None:
        days = self._keeper.days_ahead
        if days is None or days >= self._alarm_days:
            return None
        return f"partitions are made for {days:.1f} days only"


async def run_keeper(options: KeeperOptions) -> None:
    """Work or stand by until a signal comes (or `options.lifecycle.stop`); then release the lease, within 2 s.

    Never raises for PostgreSQL being away: it waits, and readiness says why.

    Raises:
        OSError: the health listener's address is taken or not ours.
    """
    keeper = Keeper(options)
    problems = Problems(options, keeper)
    async with living(options.lifecycle) as stopping:
        working = asyncio.create_task(_work(options, keeper, problems, stopping))
        waiting = asyncio.create_task(stopping.wait())
        _log.info("keeper started", keeper=keeper.id)
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            options.lifecycle.health.stopping = True
            await asyncio.wait({working}, timeout=_STEP_GRACE_S)
        finally:
            is_idle = working.done() and not working.cancelled()
            for task in (working, waiting):
                task.cancel()
            await asyncio.wait({working, waiting})
            await _leave(keeper, is_idle=is_idle)
        if is_idle:
            working.result()  # a bug in a step ends the process, with its lease released


async def _work(
    options: KeeperOptions, keeper: Keeper, problems: Problems, stopping: asyncio.Event
) -> None:
    backoff = _FIRST_BACKOFF_S
    while not stopping.is_set():
        try:
            await keeper.step()
        except (StoreUnavailable, StoreRejected) as error:
            problems.store = str(error)
            _log.warning("round failed", keeper=keeper.id, error=str(error), retry_s=backoff)
            await _rest(stopping, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
            backoff = min(_LAST_BACKOFF_S, backoff * 2)
        else:
            problems.store = None
            backoff = _FIRST_BACKOFF_S
            await _rest(stopping, options.interval_s)


async def _rest(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def _leave(keeper: Keeper, *, is_idle: bool) -> None:
    try:
        async with asyncio.timeout(_LEAVE_S):
            await keeper.close(is_idle=is_idle)
    except (StoreUnavailable, StoreRejected, TimeoutError) as error:
        _log.warning("lease not released", keeper=keeper.id, error=type(error).__name__)
    else:
        _log.info("keeper stopped", keeper=keeper.id)
