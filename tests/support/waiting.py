"""Wait for something to be true, not for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_POLL_S = 0.01


async def until(condition: Callable[[], bool], what: str, *, within_s: float = 10.0) -> None:
    """Return as soon as the condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            message = f"not within {within_s:.0f} s: {what}"
            raise AssertionError(message)
        await asyncio.sleep(_POLL_S)


async def until_true(
    condition: Callable[[], Awaitable[bool]], what: str, *, within_s: float = 10.0
) -> None:
    """Do the same with a condition that has to be asked for: of a database, of a process."""
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() >= deadline:
            message = f"not within {within_s:.0f} s: {what}"
            raise AssertionError(message)
        await asyncio.sleep(_POLL_S)
