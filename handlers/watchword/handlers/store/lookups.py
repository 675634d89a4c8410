"""Reads for operators' pages, on the connection of whoever has the transaction."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.operators import Row
from watchword.handlers.store.statements import load


@dataclass(frozen=True, slots=True)
class _Statements:
    tenants_of_nodes: str
    tenants_of_requests: str
    tenant_of_token: str
    tenant_of_grant: str
    tenant_of_command: str
    nodes_known_by: str
    audit: str
    overview: str
    node_states: str
    refused_lately: str
    joined_lately: str
    attestor_rates: str


_SQL = load(_Statements, "lookups.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which rows of the audit log; None narrows nothing. `before` is the id that the page before ended with."""

    who: str | None = None
    action: str | None = None
    target: str | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A text that may name a machine, in the forms in which tables have it."""

    text: str
    lowest: UUID | None
    highest: UUID | None
    """The range of ids that begin with the text; None if none can."""
    subjects: list[bytes]
    digest: bytes | None


async def tenants_of_nodes(connection: Connection, ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the tenants of nodes that there are. A node never changes its tenant."""
    rows = await connection.fetch(_SQL.tenants_of_nodes, list(ids))
    return {row["id"]: row["tenant"] for row in rows}


async def tenants_of_requests(connection: Connection, ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the tenants of join requests that there are. One that changes it changes its version."""
    rows = await connection.fetch(_SQL.tenants_of_requests, list(ids))
    return {row["id"]: row["tenant"] for row in rows}


async def tenant_of_token(connection: Connection, token: str) -> str | None:
    """Return the tenant of a join token."""
    found: str | None = await connection.fetchval(_SQL.tenant_of_token, token)
    return found


async def tenant_of_grant(connection: Connection, grant: UUID) -> str | None:
    """Return the tenant of a reclaim grant."""
    found: str | None = await connection.fetchval(_SQL.tenant_of_grant, grant)
    return found


async def tenant_of_command(connection: Connection, command: UUID) -> str | None:
    """Return the tenant of a command: its node's."""
    found: str | None = await connection.fetchval(_SQL.tenant_of_command, command)
    return found


async def nodes_known_by(connection: Connection, name: Name) -> list[UUID]:
    """Return the nodes that a text names, at most 1,000."""
    rows = await connection.fetch(
        _SQL.nodes_known_by, name.text, name.lowest, name.highest, name.subjects, name.digest
    )
    return [row[0] for row in rows]


async def audit(connection: Connection, wanted: AuditFilter, limit: int) -> list[Row]:
    """Return rows of the audit log, newest first."""
    rows = await connection.fetch(
        _SQL.audit, wanted.who, wanted.action, wanted.target, wanted.before, limit
    )
    return [dict(row) | {"detail": json.loads(row["detail"])} for row in rows]


async def overview(connection: Connection, tenant: str | None, first: UUID, now: datetime) -> Row:
    """Return counts of a tenant or of all; `first` is the least id that a node of the last hour can have."""
    (counts,) = await connection.fetch(_SQL.overview, tenant, first)
    states = await connection.fetch(_SQL.node_states, tenant)
    refused = await connection.fetch(_SQL.refused_lately, tenant, now)
    joined = await connection.fetch(_SQL.joined_lately, tenant, now, first)
    return dict(counts) | {
        "nodes": {row["state"]: row["nodes"] for row in states},
        "refused": sum(row["refused"] for row in refused),
        "suppressed": sum(row["suppressed"] for row in refused),
        "joined_by_5_minutes": [row["joined"] for row in joined],
        "refused_by_5_minutes": [row["refused"] for row in refused],
    }


async def attestor_rates(
    connection: Connection, tenant: str | None, first: UUID, now: datetime
) -> list[Row]:
    """Return what each attestor let in, refused and let wait in the last hour."""
    rows = await connection.fetch(_SQL.attestor_rates, tenant, now, first)
    return [dict(row) for row in rows]
