"""Requests that went to Kafka a moment ago and have no answer yet.

A copy of one need not go there again. Once the window has passed, or an answer has come, it does:
the request or its answer may be lost, or the answer may have been that the service was away.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic


class Pending:
    """What is on its way or was acknowledged within the window, by request digest."""

    def __init__(
        self, *, window_s: float, capacity: int, clock: Callable[[], float] = monotonic
    ) -> None:
        """Remember at most `capacity` requests, for `window_s`."""
        self._window_s = window_s
        self._capacity = capacity
        self._clock = clock
        self._sent: OrderedDict[bytes, float] = OrderedDict()
        self._on_the_way: dict[bytes, asyncio.Task[None]] = {}

    async def is_copy(self, digest: bytes) -> bool:
        """Tell whether this request need not be sent; one on its way is waited for first.

        Raises:
            Unavailable: it was on its way, and did not arrive.
        """
        task = self._on_the_way.get(digest)
        if task is not None:
            await asyncio.shield(task)
            return True
        at = self._sent.get(digest)
        return at is not None and self._clock() - at < self._window_s

    async def send(self, digest: bytes, sending: Coroutine[None, None, None]) -> None:
        """Carry a sending through, and let copies wait for it; its error is everybody's.

        A client that is cut off does not cancel what others may be waiting for.
        """
        task = asyncio.create_task(self._send(digest, sending))
        self._on_the_way[digest] = task
        task.add_done_callback(_look)
        await asyncio.shield(task)

    def answered(self, digest: bytes) -> None:
        """Forget a request: it has an answer."""
        self._sent.pop(digest, None)

    async def settle(self) -> None:
        """Return when nothing is on its way any more."""
        if self._on_the_way:
            await asyncio.wait(self._on_the_way.values())

    async def _send(self, digest: bytes, sending: Coroutine[None, None, None]) -> None:
        # Before it is sent: the answer may be here before the acknowledgement is.
        self._sent[digest] = self._clock()
        self._sent.move_to_end(digest)
        if len(self._sent) > self._capacity:
            self._sent.popitem(last=False)
        try:
            await sending
        except BaseException:
            self._sent.pop(digest, None)
            raise
        finally:
            del self._on_the_way[digest]


def _look(task: asyncio.Task[None]) -> None:
    """Look at the error of a task that nobody may be waiting for any more."""
    with suppress(asyncio.CancelledError):
        task.exception()
