"""How long to wait before trying again, so that ten thousand machines do not try together."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

MAX_RETRY_AFTER_S = 3600.0
"""An unsigned header that asks for more gets this: it must not silence a machine for ever."""

_SPREAD = 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """How the agent waits. Times are seconds; tests replace `sleep`, `draw` and `monotonic`."""

    first_s: float = 1.0
    """The greatest first wait of a back-off."""
    cap_s: float = 300.0
    """The greatest wait of a back-off."""
    resend_after_s: float = 60.0
    """How long a request may go without an answer before the same bytes are sent again; doubles each time."""
    poll_s: float = 25.0
    """How long one look for an answer lasts."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = field(default=random.SystemRandom().random, repr=False)
    """Returns a number in [0, 1)."""
    monotonic: Callable[[], float] = time.monotonic

    def spread(self, seconds: float) -> float:
        """Return the wait with jitter: never less than asked for, and up to a quarter more."""
        return seconds * (1.0 + _SPREAD * self.draw())


class Backoff:
    """Waits that double, each drawn anew between half and all of the bound."""

    def __init__(self, pace: Pace) -> None:
        """Start with the first bound."""
        self._pace = pace
        self._bound_s = pace.first_s

    def reset(self) -> None:
        """Begin anew: something worked."""
        self._bound_s = self._pace.first_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Return how long to wait; at least `retry_after_s`, if the other side asked for it."""
        wait_s = self._bound_s * (0.5 + 0.5 * self._pace.draw())
        self._bound_s = min(self._bound_s * 2, self._pace.cap_s)
        if retry_after_s is not None:
            wait_s = max(wait_s, self._pace.spread(min(retry_after_s, MAX_RETRY_AFTER_S)))
        return wait_s

    async def wait(self, retry_after_s: float | None = None) -> None:
        """Wait that long."""
        await self._pace.sleep(self.next_s(retry_after_s))
