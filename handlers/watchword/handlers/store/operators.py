"""Statements of operators, on the connection of whoever has the transaction."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from watchword.handlers.errors import Conflict, NotFound
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load

Row = dict[str, Any]
Place = Literal["pool", "site"]


@dataclass(frozen=True, slots=True)
class _Statements:
    clock: str
    audit: str
    create_tenant: str
    list_tenants: str
    delete_tenant: str
    uses_of_tenant: str
    create_pool: str
    list_pools: str
    delete_pool: str
    uses_of_pool: str
    create_site: str
    list_sites: str
    delete_site: str
    uses_of_site: str
    create_token: str
    list_tokens: str
    lock_token: str
    revoke_token: str
    list_nodes: str
    find_nodes: str
    node: str
    node_certificates: str
    node_bindings: str
    node_subjects: str
    node_audit: str


_SQL = load(_Statements, "operators.sql")


@dataclass(frozen=True, slots=True)
class NewTokenRow:
    """What an INSERT into `tokens` needs."""

    id: str
    secret_sha256: bytes
    tenant: str
    pool: str
    site: str | None
    role: str
    uses: int
    expires_at: datetime | None
    expect: dict[str, str]
    allow_reclaim: bool
    allowed_kinds: list[str] | None
    created_by: str


async def clock(connection: Connection) -> datetime:
    """Return the time that stamps an operator's act."""
    found: datetime = await connection.fetchval(_SQL.clock)
    return found


async def audit(
    connection: Connection,
    *,
    at: datetime,
    who: str,
    action: str,
    target: str,
    why: str,
    detail: dict[str, Any],
) -> None:
    """Add a row to the audit log."""
    await connection.execute(_SQL.audit, at, who, action, target, why, json.dumps(detail))


async def create_tenant(connection: Connection, tenant: str, title: str, now: datetime) -> Row:
    """Add a tenant; raises `Conflict` if there is one of that name."""
    row = await connection.fetchrow(_SQL.create_tenant, tenant, title, now)
    if row is None:
        message = f"tenant {tenant} exists"
        raise Conflict(message)
    return dict(row)


async def list_tenants(connection: Connection) -> list[Row]:
    """Return all tenants with the numbers of their adopting and active nodes."""
    return _dicts(await connection.fetch(_SQL.list_tenants))


async def delete_tenant(connection: Connection, tenant: str) -> Row:
    """Take a tenant away; raises `NotFound`, or `Conflict` while something is in it."""
    return await _deleted(
        connection, f"tenant {tenant}", _SQL.uses_of_tenant, _SQL.delete_tenant, tenant
    )


async def create_place(
    connection: Connection, kind: Place, tenant: str, name: str, now: datetime
) -> Row:
    """Add a pool or site; raises `NotFound` without the tenant, `Conflict` if it exists."""
    statement = _SQL.create_pool if kind == "pool" else _SQL.create_site
    try:
        row = await connection.fetchrow(statement, tenant, name, now)
    except asyncpg.ForeignKeyViolationError as error:
        message = f"no tenant {tenant}"
        raise NotFound(message) from error
    if row is None:
        message = f"{kind} {tenant}/{name} exists"
        raise Conflict(message)
    return dict(row)


async def list_places(connection: Connection, kind: Place, tenant: str | None) -> list[Row]:
    """Return the pools or sites of a tenant, or of all."""
    statement = _SQL.list_pools if kind == "pool" else _SQL.list_sites
    return _dicts(await connection.fetch(statement, tenant))


async def delete_place(connection: Connection, kind: Place, tenant: str, name: str) -> Row:
    """Take a pool or site away; raises `NotFound`, or `Conflict` that says what names it."""
    uses, statement = (
        (_SQL.uses_of_pool, _SQL.delete_pool)
        if kind == "pool"
        else (_SQL.uses_of_site, _SQL.delete_site)
    )
    return await _deleted(connection, f"{kind} {tenant}/{name}", uses, statement, tenant, name)


async def _deleted(connection: Connection, what: str, uses: str, statement: str, *key: str) -> Row:
    # Counted for the operator; what comes between is caught by the foreign keys.
    if found := await connection.fetch(uses, *key):
        listed = ", ".join(f"{row['what']} ({row['n']})" for row in found)
        message = f"{what} is in use: {listed}"
        raise Conflict(message)
    try:
        row = await connection.fetchrow(statement, *key)
    except asyncpg.ForeignKeyViolationError as error:
        message = f"{what} is in use ({error.table_name} refer to it)"
        raise Conflict(message) from error
    if row is None:
        message = f"no {what}"
        raise NotFound(message)
    return dict(row)


async def create_token(connection: Connection, token: NewTokenRow, now: datetime) -> Row:
    """Add a token; raises `NotFound` without its pool or site."""
    try:
        row = await connection.fetchrow(
            _SQL.create_token,
            token.id,
            token.secret_sha256,
            token.tenant,
            token.pool,
            token.site,
            token.role,
            token.uses,
            token.expires_at,
            json.dumps(token.expect),
            token.allow_reclaim,
            token.allowed_kinds,
            now,
            token.created_by,
        )
    except asyncpg.ForeignKeyViolationError as error:
        is_site = "site" in (error.constraint_name or "")
        name = (
            f"site {token.tenant}/{token.site}" if is_site else f"pool {token.tenant}/{token.pool}"
        )
        message = f"no {name}"
        raise NotFound(message) from error
    return dict(row)  # type: ignore[arg-type]  # an INSERT that did not raise returns its row


async def list_tokens(
    connection: Connection, tenant: str | None, after: str | None, limit: int, *, spent_too: bool
) -> list[Row]:
    """Return tokens by id, without the hash of their secret; only usable ones unless asked."""
    return _dicts(await connection.fetch(_SQL.list_tokens, tenant, spent_too, after, limit))


async def revoke_token(connection: Connection, token: str, now: datetime) -> Row:
    """Revoke a token under its lock; raises `NotFound`, or `Conflict` if it was revoked before."""
    locked = await connection.fetchrow(_SQL.lock_token, token)
    if locked is None:
        message = f"no token {token}"
        raise NotFound(message)
    if locked["revoked_at"] is not None:
        message = f"token {token} was revoked before"
        raise Conflict(message)
    row = await connection.fetchrow(_SQL.revoke_token, token, now)
    return dict(row)  # type: ignore[arg-type]  # the row is locked


async def list_nodes(  # noqa: PLR0913 - each is a filter
    connection: Connection,
    *,
    tenant: str | None,
    pool: str | None,
    site: str | None,
    role: str | None,
    state: str | None,
    after: UUID | None,
    expiring_in: timedelta | None,
    limit: int,
    among: Sequence[UUID] | None = None,
) -> list[Row]:
    """Return nodes by id, from behind `after`, each with the end of its current certificate."""
    return _dicts(
        await connection.fetch(
            _SQL.list_nodes, tenant, pool, site, role, state, after, limit, expiring_in, among
        )
    )


async def find_nodes(
    connection: Connection,
    *,
    tenant: str | None,
    pool: str | None,
    site: str | None,
    role: str | None,
    states: Sequence[str],
    limit: int,
) -> list[UUID]:
    """Return ids of nodes in these states, in order."""
    rows = await connection.fetch(_SQL.find_nodes, tenant, pool, site, role, states, limit)
    return [row[0] for row in rows]


async def node(connection: Connection, node_id: UUID) -> Row | None:
    """Return a node with its certificates, bindings, subjects and audit rows, newest first."""
    row = await connection.fetchrow(_SQL.node, node_id)
    if row is None:
        return None
    audit_rows = _dicts(await connection.fetch(_SQL.node_audit, str(node_id)))
    return dict(row) | {
        "certificates": _dicts(await connection.fetch(_SQL.node_certificates, node_id)),
        "bindings": _dicts(await connection.fetch(_SQL.node_bindings, node_id)),
        "subjects": _dicts(await connection.fetch(_SQL.node_subjects, node_id)),
        "audit": [found | {"detail": json.loads(found["detail"])} for found in audit_rows],
    }


def _dicts(rows: "Sequence[asyncpg.Record]") -> list[Row]:
    return [dict(row) for row in rows]
