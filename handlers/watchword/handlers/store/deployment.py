"""What a database says about its own deployment: its clock, limits, partitions, backlog."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from watchword.handlers.errors import StoreRejected
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated


@dataclass(frozen=True, slots=True)
class _Statements:
    clock: str
    session: str
    standbys: str
    partitions_until: str
    oldest_unpublished: str
    leases: str
    ids_are_behind: str


_SQL = load(_Statements, "deployment.sql")


@dataclass(frozen=True, slots=True)
class Backlog:
    """Events that no relay has published: the age of the oldest in seconds, and how many (up to 10,000)."""

    age_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Leases:
    """How many of the relay's shards, and how many other leases, somebody holds."""

    shards: int
    others: int


async def clock(connection: Connection) -> datetime:
    """Return the server's real time, whatever `watchword.now()` was moved to."""
    found: datetime = await connection.fetchval(_SQL.clock)
    return found


async def session(connection: Connection) -> Mapping[str, str]:
    """Return what is in force for this session, by the names of pg_settings."""
    return {row["name"]: row["setting"] for row in await connection.fetch(_SQL.session)}


async def synchronous_standbys(connection: Connection) -> int:
    """Return how many standbys are synchronous."""
    (row,) = await connection.fetch(_SQL.standbys)
    return int(row["synchronous"])


async def partitions_until(connection: Connection) -> Mapping[str, datetime]:
    """Return up to when the partitions of each partitioned table reach."""
    return {row["parent"]: row["until"] for row in await connection.fetch(_SQL.partitions_until)}


async def backlog(connection: Connection) -> Backlog:
    """Return what waits for a relay."""
    (row,) = await connection.fetch(_SQL.oldest_unpublished)
    return Backlog(row["age_s"], row["rows"])


async def leases(connection: Connection) -> Leases:
    """Return what is held now."""
    (row,) = await connection.fetch(_SQL.leases)
    return Leases(row["shards_held"], row["leases_held"])


async def ids_are_behind(connection: Connection) -> bool:
    """Tell whether this cluster's transaction ids are behind those of its cursors.

    They never are, but after a dump was loaded into another cluster: what happens there looks as if it
    had been published long ago, and what waited in the dump is never published.
    """
    async with translated():
        found: bool = await connection.fetchval(_SQL.ids_are_behind)
    return found


async def check_ids(connection: Connection) -> None:
    """Raise `StoreRejected` if the transaction ids are behind those of the cursors."""
    if await ids_are_behind(connection):
        message = "transaction ids are behind the cursors': a dump was loaded (docs/guides/backup-and-restore.md)"
        raise StoreRejected(message)
