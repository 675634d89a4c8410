"""Taking a bad row out of the relay's way: an audited act of an operator."""

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from watchword.handlers.errors import NotFound
from watchword.handlers.store.connection import Database
from watchword.handlers.store.relay import SQL


@dataclass(frozen=True, slots=True)
class Parked:
    """A row that is not published any more. It stays in the journal."""

    event_id: UUID
    seq: int
    shard: int
    parked_at: datetime
    who: str
    why: str


async def park(database: Database, event_id: UUID, *, who: str, why: str) -> bool:
    """Have the relay skip one event for good; return False if it was parked before.

    The relay that owns the shard goes on with the next row within a few seconds. Consumers never
    get the event, so `why` should say how they learn of it.

    Raises:
        NotFound: no event of this id waits to be published.
        StoreUnavailable: PostgreSQL is away.
    """
    async with database.transaction() as connection:
        if await connection.fetchval(SQL.parked, event_id) is not None:
            return False
        found = await connection.fetchrow(SQL.unpublished, event_id)
        if found is None:
            message = f"no event {event_id} waits to be published"
            raise NotFound(message)
        now: datetime = await connection.fetchval(SQL.now)
        added = await connection.fetchval(
            SQL.park, event_id, found["seq"], found["shard"], now, who, why
        )
        if added is None:
            return False
        detail = {name: found[name] for name in ("seq", "shard", "topic", "type")}
        await connection.execute(SQL.audit, now, who, str(event_id), why, json.dumps(detail))
        return True


async def parked(database: Database) -> list[Parked]:
    """Return what was parked, oldest first."""
    async with database.transaction() as connection:
        return [Parked(*row) for row in await connection.fetch(SQL.list_parked)]
