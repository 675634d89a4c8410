"""The keeper as a process: it waits out what is away, says why it is not ready, and stops on a signal."""

import asyncio

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.streams.keeper.keeper import Keeper
from watchword.streams.keeper.options import KeeperOptions
from watchword.streams.leased import Backoff, rest, run_leased

_log = structlog.get_logger(__name__)

_LONGEST_BACKOFF_S = 5.0


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

    async def work(stopping: asyncio.Event) -> None:
        await _work(options, keeper, problems, stopping)

    await run_leased("keeper", keeper, options.lifecycle, work)


async def _work(
    options: KeeperOptions, keeper: Keeper, problems: Problems, stopping: asyncio.Event
) -> None:
    backoff = Backoff(_LONGEST_BACKOFF_S)
    while not stopping.is_set():
        try:
            await keeper.step()
        except (StoreUnavailable, StoreRejected) as error:
            problems.store = str(error)
            _log.warning(
                "round failed", keeper=keeper.id, error=str(error), retry_s=backoff.seconds
            )
            await backoff.pause(stopping)
        else:
            problems.store = None
            backoff.reset()
            await rest(stopping, options.interval_s)
