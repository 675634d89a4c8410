"""Tenants, and the pools and sites in them."""

import re

from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.store import operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Place, Row
from watchword.schemas.ids import ROOT

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_MAX_TITLE = 200


def label(text: str, what: str) -> str:
    """Return a DNS label; raises `BadArgument`."""
    if not _LABEL.fullmatch(text):
        message = f"{what}: lower-case letters, digits and hyphens, at most 63, not {text!r}"
        raise BadArgument(message)
    return text


async def create_tenant(database: Database, actor: Actor, tenant: str, *, title: str = "") -> Row:
    """Add a tenant and return its row.

    Raises:
        BadArgument: the name is no DNS label, or the title is too long.
        Conflict: there is one of that name.
    """
    label(tenant, "tenant")
    if len(title) > _MAX_TITLE or not title.isprintable():
        message = f"title: at most {_MAX_TITLE} printable characters"
        raise BadArgument(message)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.create_tenant(connection, tenant, title, now)
        act = Act("tenant.created", tenant, tenant, row, {"title": title})
        await record(connection, actor, act, now)
    return row


async def list_tenants(database: Database) -> list[Row]:
    """Return all tenants, with how many nodes each has."""
    async with database.transaction() as connection:
        return await operators.list_tenants(connection)


async def delete_tenant(database: Database, actor: Actor, tenant: str) -> Row:
    """Take away a tenant that nothing is in, and return its row.

    Raises:
        NotFound: there is none of that name.
        Conflict: pools or sites are in it, or it is the root tenant.
    """
    if tenant == ROOT:
        message = "the root tenant stays: it has what nobody else authenticated for"
        raise Conflict(message)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.delete_tenant(connection, label(tenant, "tenant"))
        await record(connection, actor, Act("tenant.deleted", tenant, tenant, row, {}), now)
    return row


async def create_place(
    database: Database, actor: Actor, kind: Place, tenant: str, name: str
) -> Row:
    """Add a pool or site to a tenant, and return its row.

    Raises:
        BadArgument: a name is no DNS label.
        NotFound: there is no such tenant.
        Conflict: the tenant has one of that name.
    """
    label(tenant, "tenant")
    label(name, kind)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.create_place(connection, kind, tenant, name, now)
        act = Act(f"{kind}.created", tenant, f"{tenant}/{name}", row, {kind: name})
        await record(connection, actor, act, now)
    return row


async def list_places(database: Database, kind: Place, *, tenant: str | None = None) -> list[Row]:
    """Return the pools or sites of a tenant, or of all."""
    if tenant is not None:
        label(tenant, "tenant")
    async with database.transaction() as connection:
        return await operators.list_places(connection, kind, tenant)


async def delete_place(
    database: Database, actor: Actor, kind: Place, tenant: str, name: str
) -> Row:
    """Take away a pool or site that nothing names, and return its row.

    Raises:
        NotFound: there is none of that name.
        Conflict: nodes, tokens or other rows name it, in whatever state they are; it says which, and how many.
    """
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.delete_place(
            connection, kind, label(tenant, "tenant"), label(name, kind)
        )
        act = Act(f"{kind}.deleted", tenant, f"{tenant}/{name}", row, {kind: name})
        await record(connection, actor, act, now)
    return row
