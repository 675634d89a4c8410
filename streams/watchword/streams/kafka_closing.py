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
    # What `stop` did not get to: a producer's sender, and the sockets.
    sender: asyncio.Future[Any] | None = getattr(
        getattr(client, "_sender", None), "sender_task", None
    )
    if sender is not None:
        sender.cancel()
    inside: Any = getattr(client, "_client", None) or getattr(client, "client", None)
    if inside is not None:
        closing = asyncio.ensure_future(inside.close())
        closing.add_done_callback(_look)
        await asyncio.wait((closing,), timeout=patience_s)
        if closing.done():
            _send_away_who_waits_for_metadata(inside)
    await asyncio.wait([stopping] if sender is None else [stopping, sender], timeout=patience_s)


def _send_away_who_waits_for_metadata(inside: Any) -> None:  # noqa: ANN401 - aiokafka's client has no types
    """Say that there is none: nobody asks for it any more, and sends that failed wait for it before they end."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    answer.set_result(False)
    waited: asyncio.Future[bool] | None = inside._md_update_fut  # noqa: SLF001 - there is no public way
    if waited is not None and not waited.done():
        waited.set_result(False)
    inside._md_update_fut = answer  # noqa: SLF001 - who fails from now on finds it


def _look(task: asyncio.Future[Any]) -> None:
    """Look at an error that nobody waits for, or the loop complains about it."""
    if not task.cancelled():
        task.exception()
