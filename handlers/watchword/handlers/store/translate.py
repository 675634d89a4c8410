"""The driver's errors in our own words, once, where they enter.

A statement that PostgreSQL refuses for its data or its shape (SQLSTATE classes 21, 22, 23, 42 and 54)
is `StoreRejected`: trying again would fail again. Everything else is `StoreUnavailable`, also an
error without SQLSTATE (asyncpg raises `InternalClientError`, `InterfaceError` and OSErrors when a
backend dies in COMMIT): whether a commit happened is unknown, and the batch runs again.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg

from watchword.handlers.errors import StoreRejected, StoreUnavailable

DATA_CLASSES = frozenset(("21", "22", "23", "42", "54"))
"""54 is a limit of the program that the data exceed, such as the size of an index row: for ever."""


def translate(error: Exception) -> StoreRejected | StoreUnavailable:
    """Return our word for an error of the driver or the network under it."""
    sqlstate: str | None = getattr(error, "sqlstate", None)
    if sqlstate is not None and sqlstate[:2] in DATA_CLASSES:
        # The message may quote values of the statement; the class and constraint never do.
        constraint = getattr(error, "constraint_name", None)
        return StoreRejected(f"{type(error).__name__} {sqlstate} {constraint or ''}".rstrip())
    return StoreUnavailable(f"{type(error).__name__} {sqlstate or ''}".rstrip())


FOREIGN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
)
"""What a statement may raise. `TimeoutError` is an OSError."""

_AWAY_CLASSES = frozenset(("08", "25", "40", "53", "55", "57", "58", "XX"))


def is_away(error: Exception) -> bool:
    """Tell whether an error of somebody else's statement is the database's doing and no fault of theirs.

    On a closed connection every error is. An `InterfaceError` on an open one is a wrong argument.
    """
    sqlstate: str | None = getattr(error, "sqlstate", None)
    if sqlstate is None:
        return not isinstance(error, asyncpg.InterfaceError)
    return sqlstate[:2] in _AWAY_CLASSES


@asynccontextmanager
async def translated() -> AsyncGenerator[None]:
    """Let only our own errors out."""
    try:
        yield
    except FOREIGN as error:
        raise translate(error) from error
