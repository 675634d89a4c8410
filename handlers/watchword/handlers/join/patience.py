"""How long verifiers may take, and what becomes of those that take longer."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.join.candidate import Broken, Judgement
from watchword.handlers.join.ports import Lane

_log = structlog.get_logger(__name__)

LATE_IN_A_ROW = 5
"""After so many time-outs in a row an attestor is not asked for `REST`, so that the partition flows."""

REST = timedelta(seconds=30)

LANE_SECONDS = 1.5
"""How long at most a verifier may take inside a transaction: PostgreSQL ends a session that idles in one for 2 s."""

_END_SECONDS = 1.0
"""How long a late verifier may take to end once it was cancelled; it is told twice."""

_SLICES = 10
"""The time limit is counted in so many parts. One that took longer than it should was spent by somebody
who let nobody else have a turn, and counts no more than its length."""

_STALL_SHARE = 0.5
"""A query that has taken this part of the time limit is what everybody waits for."""

_TASK = "verify "
"""What the names of tasks begin with in which attestors verify."""

Work = Coroutine[Any, Any, Judgement]


def verified_by(task: str) -> str | None:
    """Return the attestor that verifies in a task of this name."""
    return task.removeprefix(_TASK) if task.startswith(_TASK) else None


class Patience:
    """Runs verifications, each with its deadline, and knows how late each attestor has been."""

    def __init__(self, seconds: float, at_once: Mapping[str, int] | None = None) -> None:
        """`seconds` is how long an attestor may take, `at_once` how many verifications of some may run."""
        self._seconds = seconds
        self._places = {name: asyncio.Semaphore(places) for name, places in (at_once or {}).items()}
        self._late: dict[str, int] = {}
        self._resting_until: dict[str, datetime] = {}

    def rests(self, attestor: str, now: datetime) -> bool:
        """Tell whether this attestor is not to be asked: it was late too often in a row."""
        until = self._resting_until.get(attestor)
        return until is not None and now < until

    async def run(
        self,
        works: Sequence[tuple[str, Work]],
        now: datetime,
        *,
        lane: Lane | None,
        waits_for: Callable[[], float],
    ) -> list[Judgement]:
        """Run all together and return their judgements in order; all have ended on return.

        A work is an attestor's id and a coroutine; what the coroutine raises is raised here. One that
        was late is `Broken`, whatever it came to while it was cancelled: it may have skipped a check. So is one
        that had to wait for a place and did not end in time; but its attestor is not blamed for that.
        `waits_for` says for how many seconds the query that runs for them has been running, `lane` is the
        transaction in which they verify.

        Raises:
            StoreUnavailable: some are late because PostgreSQL is: it stalls, and nobody else is to blame.
        """
        if not works:
            return []
        seconds = min(self._seconds, LANE_SECONDS) if lane is not None else self._seconds
        waited: set[int] = set()
        tasks = [
            asyncio.create_task(self._in_place(attestor, work, nth, waited), name=_TASK + attestor)
            for nth, (attestor, work) in enumerate(works)
        ]
        late: set[asyncio.Task[Judgement]] = set()
        try:
            late = set(tasks)
            for _ in range(_SLICES):
                _, late = await asyncio.wait(late, timeout=seconds / _SLICES)
                if not late:
                    break
            if late and waits_for() > seconds * _STALL_SHARE:
                message = "a read takes too long"
                raise StoreUnavailable(message)
        finally:
            try:
                await _end({task for task in tasks if not task.done()})
            finally:
                # If several raise, one is raised here, and nobody asks for the others.
                for task in tasks:
                    if task.done():
                        _forget(task)
                    else:
                        task.add_done_callback(_forget)
        if late and lane is not None:
            await lane.answered()
        found: list[Judgement] = []
        for nth, ((attestor, _), task) in enumerate(zip(works, tasks, strict=True)):
            if task in late and nth in waited:
                found.append(Broken("no place at its attestor"))
            elif task in late:
                self._count(attestor, now)
                found.append(Broken("too late"))
            else:
                self._late[attestor] = 0
                found.append(Broken("cancelled itself") if task.cancelled() else task.result())
        return found

    def _in_place(self, attestor: str, work: Work, nth: int, waited: set[int]) -> Work:
        places = self._places.get(attestor)
        return work if places is None else _placed(places, work, nth, waited)

    def _count(self, attestor: str, now: datetime) -> None:
        self._late[attestor] = self._late.get(attestor, 0) + 1
        _log.warning("attestor too late", attestor=attestor, in_a_row=self._late[attestor])
        if self._late[attestor] >= LATE_IN_A_ROW:
            self._late[attestor] = 0
            self._resting_until[attestor] = now + REST


async def _placed(places: asyncio.Semaphore, work: Work, nth: int, waited: set[int]) -> Judgement:
    """Do a piece of work when there is a place for it; note if that was not at once."""
    try:
        if places.locked():
            waited.add(nth)
        async with places:
            return await work
    finally:
        work.close()  # or somebody complains that it was never awaited


async def _end(late: set[asyncio.Task[Judgement]]) -> None:
    """Cancel tasks and wait until they have ended; one that will not is left behind, without effect."""
    deaf = late
    for _ in range(2):
        if deaf:
            for task in deaf:
                task.cancel()
            _, deaf = await asyncio.wait(deaf, timeout=_END_SECONDS)
    if deaf:
        _log.error("verifiers will not be cancelled", count=len(deaf))


def _forget(task: asyncio.Task[Judgement]) -> None:
    """Retrieve what a task raised, so that nobody complains that nobody did."""
    if not task.cancelled():
        task.exception()
