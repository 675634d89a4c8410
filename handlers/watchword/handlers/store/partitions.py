"""Partitions by time: made ahead, and dropped with as little in anybody's way as PostgreSQL allows.

A partition is detached CONCURRENTLY, which lets everybody go on reading and writing the others, and
dropped when it is a table of its own. Each of these statements waits for a lock for one second at
the most; who waits behind it waits no longer than that, and the keeper tries again later.
"""

import re
from dataclasses import dataclass

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated

_NAME = re.compile(r"(journal_refusal|refusals)_[0-9]{8}")
_LIMITS = "SET lock_timeout = '1s'; SET statement_timeout = '60s'"
_PATIENCE_S = 70.0


@dataclass(frozen=True, slots=True)
class _Statements:
    make: str
    days_ahead: str
    expired: str
    detached: str


_SQL = load(_Statements, "partitions.sql")


async def make(connection: Connection, *, days_ahead: int) -> int:
    """Make the partitions that are missing, up to so many days ahead; return how many were made."""
    async with translated():
        made: int = await connection.fetchval(_SQL.make, days_ahead)
        return made


async def days_ahead(connection: Connection) -> float:
    """Return for how many days there are partitions, of the table that has the fewest."""
    async with translated():
        days: float = await connection.fetchval(_SQL.days_ahead)
        return days


async def drop_expired(connection: Connection, *, retention_days: int) -> list[str]:
    """Drop the days of refusals that are past their retention and read to the end; return their names.

    Takes a connection of its own, outside a transaction: its limits are changed. What an earlier
    call began (a detach that was cut off, a table that was not dropped) is finished.

    Raises:
        StoreUnavailable: also if a lock was not to be had in time; what was done stays done.
    """
    async with translated():
        await connection.execute(_LIMITS)
        for parent, child, is_pending in await connection.fetch(_SQL.expired, retention_days):
            how = "FINALIZE" if is_pending else "CONCURRENTLY"
            await connection.execute(
                f"ALTER TABLE {parent} DETACH PARTITION {_checked(child)} {how}",
                timeout=_PATIENCE_S,
            )
        dropped: list[str] = []
        for (child,) in await connection.fetch(_SQL.detached):
            await connection.execute(f"DROP TABLE {_checked(child)}", timeout=_PATIENCE_S)
            dropped.append(child)
        return dropped


def _checked(name: str) -> str:
    """Return a name of a partition that `make_partitions` made; it needs no quotes."""
    if _NAME.fullmatch(name) is None:
        message = f"no partition of ours: {name}"
        raise ValueError(message)
    return name
