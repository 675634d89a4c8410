"""What a gateway takes on, when whoever it turns away is to come again, and who has time.

A send that waits longer than its deadline was work for nothing. If thousands of machines boot at
once, a gateway that takes them all on misses every deadline, and none of them ever joins: goodput
collapses while throughput does not (RFC 2914, section 5). So what is on its way is bounded by how
long sends take, and the others are told to come one after the other.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

_BEGIN = 256
_LEAST = 100
"""As many go at once however late they are: where all is late for another reason, such as junk that keeps the event loop
busy, fewer would be no quicker."""
_CUT = 0.7
_CUT_EVERY_S = 1.0
_SOON = 0.2
"""The share of the deadline within which a send says that more can be taken on; later than half of it: less."""

_ROUNDING = 1e-6
"""Sums of small steps may end just above what they are."""


class Window:
    """How many sends may be on their way at once: one more for each that is quick, fewer when one is late."""

    def __init__(
        self, most: int, *, deadline_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with 256, or with `most` if that is less."""
        self._most = float(most)
        self._deadline_s = deadline_s
        self._clock = clock
        self._limit = min(float(_BEGIN), self._most)
        self._cut_at = -math.inf
        self._in_flight = 0

    @property
    def limit(self) -> int:
        """How many may be on their way now."""
        return int(self._limit)

    def begin(self) -> float | None:
        """Count a send in and return its time, for `end`; None if there is no room for it."""
        if self._in_flight >= self.limit:
            return None
        self._in_flight += 1
        return self._clock()

    def end(self, begun: float, *, acknowledged: bool | None) -> None:
        """Count it out, and learn from how long it took; None if it was not sent."""
        now = self._clock()
        was_used = self._in_flight * 2 >= self._limit
        self._in_flight -= 1
        if acknowledged is None:
            return
        took_s = now - begun
        is_late = not acknowledged or took_s > self._deadline_s / 2
        # All that were on their way together are late together: that is one sign and not many.
        if is_late and now - self._cut_at >= _CUT_EVERY_S:
            self._cut_at = now
            self._limit = max(min(float(_LEAST), self._most), self._limit * _CUT)
        elif acknowledged and was_used and took_s < self._deadline_s * _SOON:
            self._limit = min(self._most, self._limit + 1)


class Turns:
    """When machines that are turned away are to come again: one after the other, and not all at once."""

    def __init__(
        self, per_s: float, *, most_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Let so many come in a second, or as many as are `served`, whatever is more; none later than `most_s`."""
        self._least_per_s = self._per_s = per_s
        self._most_s = most_s
        self._clock = clock
        self._next = -math.inf
        self._served = 0
        self._counted_at = clock()

    def row_s(self) -> float:
        """Return in how many seconds the last of those that were turned away comes again."""
        return max(0.0, self._next - self._clock())

    def served(self) -> None:
        """Count a machine that was not turned away."""
        self._served += 1

    def next_s(self) -> int:
        """Return whole seconds from now until the next turn, at least one."""
        now = self._clock()
        if now - self._counted_at >= 1.0:
            rate = self._served / (now - self._counted_at)
            self._per_s = max(self._least_per_s, rate)
            self._served, self._counted_at = 0, now
        self._next = min(max(self._next, now) + 1 / self._per_s, now + self._most_s)
        return max(1, math.ceil(self._next - now - _ROUNDING))


class Steps:
    """Lets so many go on in one turn of the event loop, and the others in the next ones, in the order in which they came.

    Each step of a join on its way waits until everything that was ready before it has had its turn. Who has time asks here first.
    """

    def __init__(self, per_turn: int) -> None:
        """Start with nobody waiting."""
        self._per_turn = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_letting = False

    async def step(self) -> None:
        """Return when it is one's turn."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if not self._is_letting:
            self._is_letting = True
            loop.call_soon(self._let)
        await mine

    def _let(self) -> None:
        left = self._per_turn
        while self._waiting and left:
            future = self._waiting.popleft()
            if not future.done():  # who was cancelled needs none
                future.set_result(None)
                left -= 1
        self._is_letting = bool(self._waiting)
        if self._is_letting:
            asyncio.get_running_loop().call_soon(self._let)
