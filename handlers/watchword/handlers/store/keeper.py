"""The keeper's side of the store: its lease, what expires, and what is pruned; `summaries` counts refusals.

Each function is a short transaction of its own, fenced by the lease. Locks (DESIGN, section 5): the
lease, the cursor, the windows, then the journal; expiry and pruning skip what others hold. So the keeper
waits for no worker, and no worker waits for more than one of these transactions.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from watchword.handlers.command_events import command_event
from watchword.handlers.errors import WatchwordError
from watchword.handlers.join.decisions import decided
from watchword.handlers.node_events import Change
from watchword.handlers.snapshots import Floor, Mark
from watchword.handlers.store import approvals, commands, journal
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.join_statements import COMMANDS
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated


class LeaseLost(WatchwordError):
    """Another keeper has the lease."""


@dataclass(frozen=True, slots=True)
class _Statements:
    before_mark: str
    take_lease: str
    hold_lease: str
    release_lease: str
    prune_inbox: str
    prune_uses: str
    prune_leases: str
    now: str
    waiting: str
    prune_requests: str
    prune_explain_jobs: str


_SQL = load(_Statements, "keeper.sql")

_SESSION = "SET enable_seqscan = off;"
"""A partition of this hour has no statistics yet, and may be large."""

PRUNED_AT_ONCE = 5_000
"""Rows of one pruning transaction: milliseconds, so that nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease held: the fence of everything that the keeper does."""

    owner: str
    epoch: int
    mark: Mark


async def open_connection(database: Database) -> Connection:
    """Return a connection for the keeper alone."""
    connection = await database.connect()
    async with translated():
        await connection.execute(_SESSION)
    return connection


async def take_lease(connection: Connection, owner: str, *, seconds: float) -> Tenure | None:
    """Take or prolong the lease; None if another has it."""
    async with translated(), connection.transaction():
        at: str = await connection.fetchval(_SQL.before_mark)
        row = await connection.fetchrow(_SQL.take_lease, owner, seconds)
    return None if row is None else Tenure(owner, row["epoch"], Mark(int(row["xid"]), Floor(at)))


async def release_lease(connection: Connection, owner: str) -> None:
    """Let one that stands by take over at once."""
    async with translated():
        await connection.execute(_SQL.release_lease, owner)


async def hold(connection: Connection, tenure: Tenure) -> None:
    """Let nobody take the lease while this transaction lasts.

    Raises:
        LeaseLost: another keeper has it.
    """
    if await connection.fetchval(_SQL.hold_lease, tenure.owner, tenure.epoch) is None:
        raise LeaseLost


# Joins that wait


async def expire_requests(connection: Connection, tenure: Tenure, *, source: str) -> int:
    """Expire up to 5,000 joins whose time to wait, or to use an approval, is over; return how many.

    Each appends `join.expired` in the same transaction.
    """
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        now: datetime = await connection.fetchval(_SQL.now)
        rows = await approvals.expire(connection, now, PRUNED_AT_ONCE)
        await journal.append(
            connection, [decided("expired", row, source=source, now=now) for row in rows]
        )
    return len(rows)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Joins that wait for an operator."""

    joins: int
    oldest_s: float
    """How long the oldest has waited; 0 if none does."""


async def waiting(connection: Connection) -> Waiting:
    """Count the joins that wait."""
    async with translated():
        row = await connection.fetchrow(_SQL.waiting)
    return Waiting(0, 0.0) if row is None else Waiting(row["joins"], row["oldest_s"])


async def prune_requests(connection: Connection, tenure: Tenure, *, over_for_s: float) -> int:
    """Delete up to 5,000 joins that were decided and whose time was over so long ago."""
    return await _prune(connection, tenure, _SQL.prune_requests, over_for_s)


# Commands to nodes


async def expire_commands(connection: Connection, tenure: Tenure, *, source: str) -> int:
    """Expire up to 5,000 commands that no node has finished in time; return how many.

    Each appends `node.command.expired` in the same transaction.
    """
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        now: datetime = await connection.fetchval(_SQL.now)
        change = Change("keeper", "its time is over", source, now)
        rows = [
            replace(row, state="expired", version=row.version + 1, ended_at=now)
            for row in await commands.lock_due(connection, now, PRUNED_AT_ONCE)
        ]
        if rows:
            await commands.change(connection, rows)
        await journal.append(
            connection, [command_event("node.command.expired", row, change) for row in rows]
        )
    return len(rows)


async def prune_commands(connection: Connection, tenure: Tenure, *, ended_for_s: float) -> int:
    """Delete up to 5,000 commands that ended so long ago."""
    return await _prune(connection, tenure, COMMANDS.prune, ended_for_s)


# Pruning


async def prune_inbox(connection: Connection, tenure: Tenure, *, older_than_s: float) -> int:
    """Delete up to 5,000 answers older than this; return how many there were."""
    return await _prune(connection, tenure, _SQL.prune_inbox, older_than_s)


async def prune_uses(connection: Connection, tenure: Tenure, *, expired_for_s: float) -> int:
    """Delete up to 5,000 uses that expired so long ago; return how many there were."""
    return await _prune(connection, tenure, _SQL.prune_uses, expired_for_s)


async def prune_leases(connection: Connection, tenure: Tenure, *, expired_for_s: float) -> int:
    """Delete the leases of relays that are long gone; return how many there were."""
    return await _prune(connection, tenure, _SQL.prune_leases, expired_for_s)


async def prune_explain_jobs(
    connection: Connection, tenure: Tenure, *, expired_for_s: float
) -> int:
    """Delete explanations that expired so long ago, answered or not; return how many there were."""
    return await _prune(connection, tenure, _SQL.prune_explain_jobs, expired_for_s)


async def _prune(connection: Connection, tenure: Tenure, statement: str, seconds: float) -> int:
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        done = await connection.execute(statement, seconds, PRUNED_AT_ONCE)
    return int(done.rpartition(" ")[2])
