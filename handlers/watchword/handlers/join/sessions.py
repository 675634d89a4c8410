"""A piece of work on a session of its own, again and again until PostgreSQL has answered."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from watchword.handlers.errors import StoreRejected, Unavailable
from watchword.handlers.join.ports import JoinStore, Session

T = TypeVar("T")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_DOUBLINGS = 5


async def on_session(
    store: JoinStore,
    work: Callable[[Session], Awaitable[T]],
    *,
    retried: Callable[[str], None],
) -> T:
    """Return what the work returns; it may be done twice. Waits for PostgreSQL for ever, with jitter.

    `retried` hears why it is done again.
    """
    failures = 0
    while True:
        try:
            session = await store.session()
            broken = True
            try:
                done = await work(session)
                broken = False
                return done
            finally:
                await store.release(session, broken=broken)
        except (Unavailable, StoreRejected) as error:
            failures += 1
            retried(str(error))
            await asyncio.sleep(pause(failures))


def pause(failures: int) -> float:
    """Return for how many seconds to wait after so many failures."""
    longest: float = min(_FIRST_PAUSE_S * 2 ** min(failures, _DOUBLINGS), _LONGEST_PAUSE_S)
    return longest * (0.5 + random.random())  # noqa: S311 - jitter, no secret
