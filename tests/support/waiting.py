"""Wait for something to be true, not for a time."""

import asyncio
import time
from collections.abc import Callable

_POLL_S = 0.01


async def until(condition: Callable[[], bool], what: str, *, within_s: float = 10.0) -> None:
    """Return as soon as the condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            message = f"not within {within_s:.0f} s: {what}"
            raise AssertionError(message)
        await asyncio.sleep(_POLL_S)
