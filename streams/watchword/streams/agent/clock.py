"""What time it is, on a machine that may not know.

A machine without a clock battery wakes up in 1970. Three things would break there: the choice of a
key by its dates, the lifetime of a challenge, and TLS, which finds every certificate not yet valid.
So the agent does not ask its wall clock alone:

* A signed time (when a key set or an answer was issued) is a lower bound of the true time. A wall
  clock below the highest bound is wrong, and is not used. The bound moves on with the monotonic clock.
* While the wall clock is wrong, an unsigned hint (a gateway's `Date`) may refine the bound. All it
  can do is to steer the choice among keys that are all signed.
* A wall clock that is ahead cannot be told from a right one; what depends on it then falls back
  and does not refuse.

Nothing is ever refused because of the machine's clock: certificates are judged by those they are
shown to, requests by the service's own time.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

BUILT = datetime(2026, 1, 1, tzinfo=UTC)
"""No agent runs before it was written."""


class AgentClock:
    """The best guess at the time."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take both clocks of the machine, in seconds."""
        self._wall = wall
        self._monotonic = monotonic
        self._bound = BUILT
        self._bound_at = monotonic()
        self._hint: datetime | None = None
        self._hint_at = 0.0

    def learn(self, signed: datetime) -> None:
        """Take an aware time that somebody trusted has signed: it is at least that late."""
        if signed > self._lower_bound():
            self._bound, self._bound_at = signed, self._monotonic()

    def hint(self, unsigned: datetime) -> None:
        """Take an aware time that somebody says it is; used only while the wall clock is wrong."""
        self._hint, self._hint_at = unsigned, self._monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether the wall clock is proven wrong: it is earlier than a time that has passed."""
        return self._wall_time() < self._lower_bound()

    @property
    def is_guess(self) -> bool:
        """Whether `now` is no more than a lower bound: the wall clock is wrong and nobody gave a hint."""
        return self.is_behind and self._hint is None

    def now(self) -> datetime:
        """Return the best guess at the time, aware, in UTC."""
        wall, bound = self._wall_time(), self._lower_bound()
        if wall >= bound:
            return wall
        if self._hint is not None:
            return max(bound, self._hint + self._since(self._hint_at))
        return bound

    def _wall_time(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), UTC)

    def _lower_bound(self) -> datetime:
        return self._bound + self._since(self._bound_at)

    def _since(self, at: float) -> timedelta:
        return timedelta(seconds=self._monotonic() - at)
