"""The relay's side of the journal: shards under lease, rows between two snapshots, cursors that move.

Every function takes the relay's connection, which does one thing at a time. Errors are ours
(`StoreUnavailable`, `StoreRejected`); after one the connection is not used again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from watchword.handlers.snapshots import Floor, Mark
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated


@dataclass(frozen=True, slots=True)
class _Statements:
    before_mark: str
    show: str
    live: str
    renew: str
    give_up: str
    take: str
    leave: str
    look: str
    news: str
    backlog: str
    move: str
    pending: str
    unpublished: str
    park: str
    parked: str
    now: str
    audit: str
    list_parked: str


SQL = load(_Statements, "relay.sql")

_SESSION = """
SET synchronous_commit = off;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
"""
"""A cursor move that a crash of PostgreSQL forgets makes duplicates, which there are anyway. The
statements are few and planned once: a partition of this hour has no statistics yet, and planning
over all partitions costs more than an empty poll."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one shard is published. `to_snapshot` is the end of a batch that was cut by its limit."""

    shard: int
    epoch: int
    from_snapshot: str
    floor: Floor
    to_snapshot: str | None = None
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """What of a shard is to be read: visible in `until`, not in `seen`, and in these bounds of `seq`."""

    shard: int
    seen: str
    until: str
    after_seq: int
    up_to_seq: int
    from_at: str


@dataclass(frozen=True, slots=True)
class Row:
    """What is published of a journal row. `headers` is a JSON object of text."""

    shard: int
    seq: int
    event_id: UUID
    topic: str
    key: bytes
    headers: str
    value: bytes
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """The shards that this relay holds, as stored; `share` is how many it should have."""

    held: Sequence[Cursor]
    share: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class Pending:
    """What is committed and not published, of all shards. Capped: there is more of it than was counted."""

    rows: int
    is_capped: bool
    oldest_seconds: float


async def open_connection(database: Database) -> Connection:
    """Return a connection for a relay alone."""
    connection = await database.connect()
    async with translated():
        await connection.execute(_SESSION)
    return connection


async def lease(connection: Connection, relay: str, *, seconds: float, shards: int) -> Lease:
    """Say that this relay lives, keep a fair share of the shards, give up the rest, take what is free."""
    async with translated(), connection.transaction():
        at, seq = await _one(connection, SQL.before_mark)
        (xid,) = await _one(connection, SQL.show, relay, seconds)
        live: int = await connection.fetchval(SQL.live)
        share = -(-shards // max(1, live))
        held = _cursors(await connection.fetch(SQL.renew, relay, seconds))
        if len(held) > share:
            await connection.execute(SQL.give_up, relay, [c.shard for c in held[share:]])
            del held[share:]
        elif len(held) < share:
            held += _cursors(await connection.fetch(SQL.take, relay, seconds, share - len(held)))
    return Lease(held, share, Mark(int(xid), Floor(at, seq)))


async def leave(connection: Connection, relay: str) -> None:
    """Give up every shard, so that others need not wait for the leases to expire."""
    async with translated():
        await connection.execute(SQL.leave, relay)


async def look(connection: Connection) -> tuple[str, int]:
    """Return the snapshot of now, and a seq that nothing visible in it exceeds."""
    async with translated():
        snapshot, seq = await _one(connection, SQL.look)
        return snapshot, seq


async def news(
    connection: Connection,
    shards: Sequence[int],
    *,
    seen: str,
    until: str,
    from_at: str,
    limit: int,
) -> list[Row]:
    """Return the rows of these shards that became visible between the snapshots, in no order."""
    async with translated():
        return _rows(await connection.fetch(SQL.news, shards, seen, until, from_at, limit))


async def backlog(
    connection: Connection, intervals: Sequence[Interval], *, limit: int
) -> list[Row]:
    """Return the first `limit` rows of each interval, by shard and `seq`."""
    async with translated():
        return _rows(
            await connection.fetch(
                SQL.backlog,
                [i.shard for i in intervals],
                [i.seen for i in intervals],
                [i.until for i in intervals],
                [i.after_seq for i in intervals],
                [i.up_to_seq for i in intervals],
                [i.from_at for i in intervals],
                limit,
            )
        )


async def move(connection: Connection, relay: str, cursors: Sequence[Cursor]) -> set[int]:
    """Store cursors in one statement; return the shards that are still ours and so were moved."""
    async with translated():
        rows = await connection.fetch(
            SQL.move,
            relay,
            [c.shard for c in cursors],
            [c.epoch for c in cursors],
            [c.from_snapshot for c in cursors],
            [c.floor.at for c in cursors],
            [c.floor.seq for c in cursors],
            [c.to_snapshot for c in cursors],
            [c.last_seq for c in cursors],
        )
        return {row["shard"] for row in rows}


async def pending(connection: Connection, *, cap_per_shard: int = 1_000) -> Pending:
    """Return what waits to be published. Cheap when little does; bounded when much does."""
    async with translated():
        rows, is_capped, seconds = await _one(connection, SQL.pending, cap_per_shard)
        return Pending(rows, is_capped, max(0.0, seconds))


async def _one(connection: Connection, statement: str, *arguments: object) -> tuple[Any, ...]:
    row = await connection.fetchrow(statement, *arguments)
    return () if row is None else tuple(row.values())


def _cursors(records: "Sequence[asyncpg.Record]") -> list[Cursor]:
    found = [
        Cursor(shard, epoch, seen, Floor(at, seq), until, last_seq)
        for shard, epoch, seen, at, seq, until, last_seq in records
    ]
    return sorted(found, key=lambda cursor: cursor.shard)


def _rows(records: "Sequence[asyncpg.Record]") -> list[Row]:
    return [Row(*record) for record in records]
