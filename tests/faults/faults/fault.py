"""What a fault is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.faults.processes.deployment import Deployment


class NotHit(Exception):
    """What was to be done to the deployment did not come about."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long the long faults last: shorter where there is little time."""

    share: float = 1.0

    def seconds(self, whole: float, *, least: float) -> float:
        """Return a part of a duration in seconds."""
        return max(least, whole * self.share)


Inject = Callable[[Deployment, Scale], Awaitable[int]]
"""Does it, undoes it, and returns how often it was done; raises `NotHit` if it was not."""


def _always(_: Deployment) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    inject: Inject
    touches: frozenset[str]
    """What it takes hold of; two faults that share something do not come together."""
    known: str = ""
    """The worst recovery that DESIGN, section 6, names for it."""
    impossible: Callable[[Deployment], str | None] = _always
    """Why it cannot be done here, or None."""
    times: int = 1
    """How often it comes alone where there is time for all of it: what it is there to find is rare."""
    answers_within_s: float | None = None
    """How long the longest wait may be while it is there alone, if that is promised."""
    longest_s: float = 240.0
    """After so long it is given up, and the run goes on."""


@dataclass(slots=True)
class Injection:
    """One time that a fault was injected. Times are monotonic seconds and seconds of the wall clock."""

    fault: str
    together_with: str | None = None
    began: float = field(default_factory=time.monotonic)
    began_wall: float = field(default_factory=time.time)
    ended: float = 0.0
    ended_wall: float = 0.0
    hits: int = 0
    problem: str | None = None

    def end(self) -> None:
        """Note that the deployment is whole again."""
        self.ended, self.ended_wall = time.monotonic(), time.time()


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, *, within_s: float, every_s: float = 0.1
) -> None:
    """Return as soon as the condition holds.

    Raises:
        NotHit: it does not in time.
    """
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() >= deadline:
            message = f"not within {within_s:.0f} s: {what}"
            raise NotHit(message)
        await asyncio.sleep(every_s)
