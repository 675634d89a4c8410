"""Stopping aiokafka's clients without being stopped by them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol


class Stoppable(Protocol):
    """A consumer or producer of aiokafka."""

    def stop(self) -> Coroutine[Any, Any, None]:
        """Stop it."""
        ...


async def close(client: Stoppable, *, patience_s: float) -> None:
    """Stop a client, and go on without it if that fails or takes longer. Never raises its errors.

    In a task of its own: aiokafka's fetcher awaits what it has cancelled, so that `stop` may raise
    a CancelledError that is nobody's, and it may swallow one that is ours.
    """
    stopping = asyncio.ensure_future(client.stop())
    await asyncio.wait((stopping,), timeout=patience_s)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    stopping.add_done_callback(_look)
    stopping.cancel()
    # What `stop` did not get to: the sockets.
    inside: Any = getattr(client, "_client", None) or getattr(client, "client", None)
    if inside is not None:
        closing = asyncio.ensure_future(inside.close())
        closing.add_done_callback(_look)
        await asyncio.wait((stopping, closing), timeout=patience_s)


def _look(task: asyncio.Future[Any]) -> None:
    """Look at an error that nobody waits for, or the loop complains about it."""
    if not task.cancelled():
        task.exception()
