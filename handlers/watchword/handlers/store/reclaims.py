"""Statements about reclaim grants, for operators, in the transaction of whoever calls. Workers have theirs in `life_writes`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import Conflict, NotFound
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.join_statements import RECLAIMS

Row = dict[str, Any]


async def add(  # noqa: PLR0913 - a row has these columns
    connection: Connection,
    *,
    grant_id: UUID,
    node_id: UUID,
    tenant: str,
    attestor: str,
    subject: Subject,
    expires_at: datetime,
    now: datetime,
    who: str,
    why: str,
) -> Row:
    """Add a grant for a node that the caller has locked; return its row."""
    row = await connection.fetchrow(
        RECLAIMS.add,
        grant_id,
        node_id,
        tenant,
        attestor,
        subject.digest,
        subject.kind,
        subject.value,
        expires_at,
        now,
        who,
        why,
    )
    return dict(row)  # type: ignore[arg-type]  # an INSERT that did not raise returns its row


async def list_grants(
    connection: Connection, node: UUID | None, after: UUID | None, limit: int, *, all_too: bool
) -> list[Row]:
    """Return grants by id."""
    rows = await connection.fetch(RECLAIMS.list, node, all_too, after, limit)
    return [dict(row) for row in rows]


async def revoke(connection: Connection, grant: UUID) -> Row:
    """Revoke a grant under its lock; raises `NotFound`, or `Conflict` if it is not open."""
    locked = await connection.fetchrow(RECLAIMS.lock_one, grant)
    if locked is None:
        message = f"no reclaim grant {grant}"
        raise NotFound(message)
    if locked["state"] != "open":
        message = f"reclaim grant {grant} is {locked['state']} already"
        raise Conflict(message)
    row = await connection.fetchrow(RECLAIMS.revoke, grant)
    return dict(row)  # type: ignore[arg-type]  # the row is locked
