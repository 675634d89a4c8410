"""Statements of purges, in the transaction of whoever calls.

The order of locks is everybody's: nodes, join requests, and the journal last. The journal is otherwise only
ever appended to; rows of it that a purge rewrites were published long ago, and keep their place.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load
from watchword.schemas.canonical import b64, canonical

Row = dict[str, Any]

_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class _Statements:
    find: str
    counts: str
    limits: str
    csrs: str
    banned_subjects: str
    lock_requests: str
    events: str
    waiting_still: str
    redact_events: str
    subjects: str
    certificates: str
    grants: str
    requests: str
    refusals: str
    bans: str
    audit: str
    nodes: str


_SQL = load(_Statements, "purging.sql")

Redact = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Makes of an event's type and one of its parts what is left of it."""


async def find(
    connection: Connection,
    *,
    ids: Sequence[UUID] | None,
    tenant: str | None,
    older_than: timedelta | None,
    subject: bytes | None,
    purged_too: bool,
    limit: int,
) -> list[tuple[UUID, str, int]]:
    """Return id, state and version of nodes that a purge may be about."""
    rows = await connection.fetch(_SQL.find, ids, tenant, older_than, subject, purged_too, limit)
    return [(row[0], row[1], row[2]) for row in rows]


async def counts(connection: Connection, nodes: Sequence[UUID]) -> Row:
    """Return how many rows of each table have something of these nodes' machines."""
    return dict(await connection.fetchrow(_SQL.counts, nodes) or {})


async def purge(
    connection: Connection,
    nodes: Sequence[UUID],
    now: datetime,
    redact_private: Redact,
    redact_value: Redact,
) -> tuple[list[Row], int]:
    """Take what is known of machines from every row of locked nodes; return the nodes, and how many events changed."""
    await connection.execute(_SQL.limits)
    csrs = [row[0] for row in await connection.fetch(_SQL.csrs, nodes)]
    requests = [row[0] for row in await connection.fetch(_SQL.lock_requests, csrs)]
    waiting = [row[0] for row in await connection.fetch(_SQL.waiting_still, csrs)]
    banned = [row[0] for row in await connection.fetch(_SQL.banned_subjects, nodes)]
    subjects = [subject.hex() for subject in banned]
    keys = [str(name).encode() for name in (*nodes, *subjects)]
    events = await connection.fetch(
        _SQL.events, keys, [b64(csr) for csr in csrs], waiting, timeout=_PATIENCE_S
    )
    changed: list[tuple[UUID, datetime, bytes, bytes]] = []
    for event_id, recorded_at, event_type, value, private in events:
        was_value, was_private = json.loads(value), json.loads(private)
        new_value = redact_value(event_type, was_value)
        new_private = redact_private(event_type, was_private)
        if (new_value, new_private) != (was_value, was_private):
            written = json.dumps(new_value, ensure_ascii=False, separators=(",", ":")).encode()
            changed.append((event_id, recorded_at, written, canonical(dict(new_private))))
    await connection.execute(_SQL.subjects, nodes)
    await connection.execute(_SQL.certificates, nodes)
    await connection.execute(_SQL.grants, nodes)
    await connection.execute(_SQL.requests, requests)
    await connection.execute(_SQL.refusals, csrs, timeout=_PATIENCE_S)
    await connection.execute(_SQL.bans, banned)
    await connection.execute(_SQL.audit, subjects)
    rows = [dict(row) for row in await connection.fetch(_SQL.nodes, nodes, now)]
    if changed:
        columns = [list(column) for column in zip(*changed, strict=True)]
        await connection.execute(_SQL.redact_events, *columns, timeout=_PATIENCE_S)
    return rows, len(changed)
