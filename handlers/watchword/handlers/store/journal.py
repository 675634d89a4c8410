"""Appending to the journal, in the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from watchword.handlers.journal import Entry
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load


@dataclass(frozen=True, slots=True)
class _Statements:
    append: str


_SQL = load(_Statements, "journal.sql")


async def append(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add entries in the order given; must be the last statement of the transaction.

    `seq` is drawn while every row lock is held, so that for one key the order of `seq` is the
    order of commits, and the relay's reading by snapshots keeps it.
    """
    if not entries:
        return
    await connection.execute(_SQL.append, [(entry.shard, *entry) for entry in entries])
