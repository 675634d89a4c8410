"""A process that works in steps under a lease: until a signal comes it works or stands by, then it gives the lease back."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.streams.lifecycle import Lifecycle, living

_log = structlog.get_logger(__name__)

_STEP_GRACE_S = 1.0
_LEAVE_S = 0.6
_FIRST_BACKOFF_S = 0.1


class Leased(Protocol):
    """What holds a lease."""

    @property
    def id(self) -> str:
        """Return the name under which it holds its lease."""
        ...

    async def close(self, *, is_idle: bool) -> None:
        """Give the lease back, if nothing runs under it any more (`is_idle`), and close connections."""
        ...


async def run_leased(
    kind: str,
    leased: Leased,
    lifecycle: Lifecycle,
    work: Callable[[asyncio.Event], Awaitable[None]],
) -> None:
    """Run `work` until it sees the event set, at a signal or `lifecycle.stop`; then release the lease, within 2 s.

    `kind` (`relay`, `keeper`) is for the log. What `work` raises is a bug in a step; it ends the process, with its lease released.

    Raises:
        OSError: the health listener's address is taken or not ours.
    """
    log = _log.bind(**{kind: leased.id})
    started, stopped = f"{kind} started", f"{kind} stopped"
    async with living(lifecycle) as stopping:
        working = asyncio.ensure_future(work(stopping))
        waiting = asyncio.create_task(stopping.wait())
        log.info(started)
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            lifecycle.health.stopping = True
            await asyncio.wait({working}, timeout=_STEP_GRACE_S)
        finally:
            is_idle = working.done() and not working.cancelled()
            for task in (working, waiting):
                task.cancel()
            await asyncio.wait({working, waiting})
            try:
                async with asyncio.timeout(_LEAVE_S):
                    await leased.close(is_idle=is_idle)
            except (StoreUnavailable, StoreRejected, TimeoutError) as error:
                log.warning("lease not released", error=type(error).__name__)
            else:
                log.info(stopped)
        if is_idle:
            working.result()


async def rest(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until it is time to stop; zero or less lets the loop turn once."""
    if seconds <= 0.0:
        await asyncio.sleep(0)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


class Backoff:
    """How long to wait after failures in a row: twice as long each time, with jitter."""

    def __init__(self, longest: float) -> None:
        """`longest` is in seconds."""
        self._longest = longest
        self.seconds = _FIRST_BACKOFF_S
        """The longest that the next pause may take."""

    def reset(self) -> None:
        """Note a success."""
        self.seconds = _FIRST_BACKOFF_S

    async def pause(self, stopping: asyncio.Event) -> None:
        """Wait after a failure."""
        await rest(stopping, self.seconds * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
        self.seconds = min(self._longest, self.seconds * 2)
