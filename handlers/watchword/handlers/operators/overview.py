"""How a deployment, or one tenant of it, is doing; and what operators have done."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from watchword.handlers.operators.grants import check_limit
from watchword.handlers.store import deployment, lookups, operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.lookups import AuditFilter
from watchword.handlers.store.operators import Row

_HOUR = timedelta(hours=1)
_RANDOM_BITS = 80
"""What follows the 48 bits of time in a UUIDv7 (RFC 9562, 5.7)."""


@dataclass(frozen=True, slots=True)
class Machinery:
    """What belongs to no tenant: the way of events to Kafka."""

    journal_age_s: float
    journal_rows: int
    shards_held: int
    keepers: int


async def show_overview(database: Database, tenant: str | None) -> Row:
    """Return `now`, counts, and the last hour in parts of five minutes; of one tenant, or of all."""
    async with database.transaction(isolation="repeatable_read") as connection:
        now = await operators.clock(connection)
        counts = await lookups.overview(connection, tenant, least_id(now - _HOUR), now)
    return {"now": now} | counts


async def show_machinery(database: Database) -> Machinery:
    """Return how far the journal is behind, and who is at work."""
    async with database.transaction() as connection:
        backlog = await deployment.backlog(connection)
        leases = await deployment.leases(connection)
    return Machinery(backlog.age_s, backlog.rows, leases.shards, leases.others)


async def attestor_rates(database: Database, tenant: str | None) -> dict[str, Row]:
    """Return by attestor what it let in and refused in the last hour, and what of it waits."""
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        rows = await lookups.attestor_rates(connection, tenant, least_id(now - _HOUR), now)
    return {row["attestor"]: row for row in rows}


async def list_audit(database: Database, wanted: AuditFilter, *, limit: int = 100) -> list[Row]:
    """Return a page of the audit log, newest first; raises `BadArgument` for one that is too long."""
    check_limit(limit)
    async with database.transaction() as connection:
        return await lookups.audit(connection, wanted, limit)


def least_id(at: datetime) -> UUID:
    """Return the least UUIDv7 of a time."""
    return UUID(int=int(at.timestamp() * 1000) << _RANDOM_BITS)
