"""Two kinds of limits: how often (token buckets), and how much at once (shares).

Both are bounded themselves: a table that grows with the number of attackers is an attack.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Literal

Over = Literal["address", "total"]

_ROUNDING = 1e-6
"""Sums of small refills may end just below what they are."""


class Buckets:
    """One token bucket for each address: `burst` tokens, refilled in `window_s` seconds.

    Remembers at most `capacity` addresses. Forgetting one gives it a full bucket, which is what an
    address that was not seen for long has anyway.
    """

    def __init__(
        self,
        burst: int,
        window_s: float,
        *,
        capacity: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start with full buckets."""
        self._burst = float(burst)
        self._rate = burst / window_s
        self._capacity = capacity
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._levels)

    def take(self, address: str) -> int:
        """Take a token; return 0, or the whole seconds after which there is one."""
        now = self._clock()
        level, at = self._levels.get(address, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._rate)
        wait_s = 0
        if level >= 1.0 - _ROUNDING:
            level -= 1.0
        else:
            wait_s = max(1, math.ceil((1.0 - level) / self._rate))
        self._levels[address] = (level, now)
        self._levels.move_to_end(address)
        if len(self._levels) > self._capacity:
            self._levels.popitem(last=False)
        return wait_s


class Shares:
    """What is held at once, by each address and by all: connections, waiters, bytes.

    Holds an entry only for an address that holds something, so the total bounds the table.
    """

    def __init__(self, *, per_address: int, total: int) -> None:
        """Nobody holds anything."""
        self._per_address = per_address
        self.total = total
        """What all may hold together."""
        self._held: dict[str, int] = {}
        self.held = 0
        """What all hold together."""

    def take(self, address: str, amount: int = 1) -> Over | None:
        """Take some, and return None; or take nothing, and return whose limit was met."""
        holds = self._held.get(address, 0)
        if holds + amount > self._per_address:
            return "address"
        if self.held + amount > self.total:
            return "total"
        self._held[address] = holds + amount
        self.held += amount
        return None

    def give(self, address: str, amount: int = 1) -> None:
        """Give back what was taken."""
        left = self._held[address] - amount
        if left:
            self._held[address] = left
        else:
            del self._held[address]
        self.held -= amount
