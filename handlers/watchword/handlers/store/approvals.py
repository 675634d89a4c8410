"""Statements about joins that wait, for operators and the keeper, in the transaction of whoever calls.

Workers have theirs in `join_reads` and `joins`. All lock rows of `join_requests` in the order of
their key; the journal comes last.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Statements:
    list_requests: str
    requests: str
    request_audit: str
    lock_requests: str
    decide: str
    lock_due: str
    expire: str


_SQL = load(_Statements, "approvals.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """Which join requests; None narrows nothing. `after` is the id that the page before ended with.

    `csr` is the beginning of the CSR's SHA-256 in hexadecimal digits, as an agent prints it.
    """

    state: str | None = None
    tenant: str | None = None
    site: str | None = None
    attestor: str | None = None
    after: UUID | None = None
    pool: str | None = None
    csr: str | None = None


@dataclass(frozen=True, slots=True)
class Locked:
    """What the lock showed of a request."""

    state: str
    version: int
    expires_at: datetime


async def list_requests(connection: Connection, wanted: RequestFilter, limit: int) -> list[Row]:
    """Return a page of join requests by id."""
    rows = await connection.fetch(
        _SQL.list_requests,
        wanted.state,
        wanted.tenant,
        wanted.site,
        wanted.attestor,
        wanted.after,
        limit,
        wanted.pool,
        wanted.csr,
    )
    return [_row(row) for row in rows]


async def requests(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row]:
    """Return join requests by their ids; those that there are."""
    return {row["id"]: _row(row) for row in await connection.fetch(_SQL.requests, ids)}


async def audit_of(connection: Connection, request: UUID) -> list[Row]:
    """Return what operators did about a request, newest first."""
    return [dict(row) for row in await connection.fetch(_SQL.request_audit, str(request))]


async def lock_requests(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Locked]:
    """Lock requests in the order of their key; return those that there are."""
    rows = await connection.fetch(_SQL.lock_requests, ids)
    return {row["id"]: Locked(row["state"], row["version"], row["expires_at"]) for row in rows}


async def decide(
    connection: Connection,
    ids: Sequence[UUID],
    *,
    state: str,
    now: datetime,
    who: str,
    comment: str,
) -> dict[UUID, Row]:
    """Write a decision on requests that the caller has locked; return the rows as they are now."""
    rows = await connection.fetch(_SQL.decide, ids, state, now, who, comment)
    return {row["id"]: dict(row) for row in rows}


async def expire(connection: Connection, now: datetime, limit: int) -> list[Row]:
    """Expire up to `limit` requests whose time is over; return the rows as they are now.

    Rows that somebody holds are passed over, so that nobody is waited for.
    """
    due = await connection.fetch(_SQL.lock_due, now, limit)
    if not due:
        return []
    columns = ([row[index] for row in due] for index in range(3))
    return [dict(row) for row in await connection.fetch(_SQL.expire, *columns)]


def _row(record: Any) -> Row:  # noqa: ANN401 - a record
    """Return a row with its JSON parsed."""
    row = dict(record)
    return row | {name: json.loads(row[name]) for name in ("claims", "facts", "snapshot")}
