"""Nodes, looked up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from watchword.handlers.errors import BadArgument, NotFound
from watchword.handlers.store import operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row

STATES = ("adopting", "active", "evicted", "banned", "retired", "deleted")
MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """Which nodes; None narrows nothing. `after` is the id that the page before ended with."""

    tenant: str | None = None
    pool: str | None = None
    site: str | None = None
    role: str | None = None
    state: str | None = None
    after: str | None = None
    expiring_in: timedelta | None = None
    """Adopting and active ones whose current certificate ends within this, or has ended."""


async def list_nodes(database: Database, wanted: NodeFilter, *, limit: int = 100) -> list[Row]:
    """Return a page of nodes by id, oldest first (the ids are of time).

    Raises:
        BadArgument: a state that there is not, an id that is none, or a page that is too long.
    """
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)
    after = None if wanted.after is None else node_id(wanted.after)
    async with database.transaction() as connection:
        return await operators.list_nodes(
            connection,
            tenant=wanted.tenant,
            pool=wanted.pool,
            site=wanted.site,
            role=wanted.role,
            state=wanted.state,
            after=after,
            expiring_in=wanted.expiring_in,
            limit=limit,
        )


async def find_nodes(
    database: Database, wanted: NodeFilter, *, states: Sequence[str], at_most: int
) -> list[UUID]:
    """Return the ids of all nodes that a filter finds in one of these states.

    Raises:
        BadArgument: a state that there is not, or more than `at_most` are found.
    """
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    async with database.transaction() as connection:
        found = await operators.find_nodes(
            connection,
            tenant=wanted.tenant,
            pool=wanted.pool,
            site=wanted.site,
            role=wanted.role,
            states=[one for one in states if wanted.state in (None, one)],
            limit=at_most + 1,
        )
    if len(found) > at_most:
        message = f"more than {at_most} nodes: narrow the filters"
        raise BadArgument(message)
    return found


async def show_node(database: Database, node: str) -> Row:
    """Return a node with `certificates`, `bindings`, `subjects` and `audit`, newest first.

    Raises:
        BadArgument: that is no node's id.
        NotFound: there is none of that id.
    """
    async with database.transaction(isolation="repeatable_read") as connection:
        found = await operators.node(connection, node_id(node))
    if found is None:
        message = f"no node {node}"
        raise NotFound(message)
    return found


def node_id(text: str) -> UUID:
    """Return the id of a node or an event; raises `BadArgument`."""
    try:
        return UUID(text)
    except ValueError:
        message = f"an id is a UUID, not {text[:64]!r}"
        raise BadArgument(message) from None
