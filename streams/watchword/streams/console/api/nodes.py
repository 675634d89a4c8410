"""Nodes that have joined, and what they may from now on."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.nodes import NodeFilter
from watchword.handlers.operators.standing import MAX_TOGETHER, SeenNode
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import Role
from watchword.streams.console.api.operation import (
    Asked,
    Given,
    Limit,
    Operation,
    Page,
    Short,
    Why,
    page,
)
from watchword.streams.console.api.shapes import CHANGED_NODE, NODE, NODE_IN_FULL

State = Literal["adopting", "active", "evicted", "banned", "retired", "deleted"]


class Which(Given):
    """Which nodes, and which page."""

    tenant: Short | None = None
    pool: Short | None = None
    site: Short | None = None
    role: Role | None = None
    state: State | None = None
    named: Annotated[
        Short | None,
        Field(
            description="What the node is known by: the beginning of its id, the value of a proven subject, a key, its"
            " token, a certificate's serial, a CSR's SHA-256"
        ),
    ] = None
    expiring_in_s: Annotated[
        int | None,
        Field(ge=0, le=10**9, description="Those whose certificate ends within so many seconds"),
    ] = None
    after: UUID | None = None
    limit: Limit = 100

    def wanted(self) -> NodeFilter:
        """Return the same as the handlers take it."""
        return NodeFilter(
            tenant=self.tenant,
            pool=self.pool,
            site=self.site,
            role=self.role,
            state=self.state,
            named=self.named,
            after=None if self.after is None else str(self.after),
            expiring_in=None
            if self.expiring_in_s is None
            else timedelta(seconds=self.expiring_in_s),
        )


class ChosenNode(Given):
    """A node; with a version, only as it was seen."""

    id: UUID
    version: Annotated[int | None, Field(ge=1, lt=2**31)] = None


class NodeChange(Given):
    """Which nodes, and why; all of them or none."""

    nodes: Annotated[list[ChosenNode], Field(min_length=1, max_length=MAX_TOGETHER)]
    why: Why

    def seen(self) -> list[SeenNode]:
        """Return the nodes as the handlers take them."""
        return [SeenNode(one.id, one.version) for one in self.nodes]


async def _list(asked: Asked, given: Which) -> Page:
    return page(await asked.desk.list_nodes(given.wanted(), given.limit), given.limit)


async def _show(asked: Asked, given: Given) -> Row:
    del given
    return await asked.desk.show_node(asked.path["id"])


Change = Callable[[Desk, Sequence[SeenNode], str], Awaitable[Sequence[Row]]]


async def _evict(desk: Desk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
    return await desk.change_nodes("evict", seen, why)


async def _retire(desk: Desk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
    return await desk.change_nodes("retire", seen, why)


async def _delete(desk: Desk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
    return await desk.change_nodes("delete", seen, why)


async def _ban(desk: Desk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
    return (await desk.ban_nodes(seen, why)).nodes


async def _unban(desk: Desk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
    return (await desk.unban_nodes(seen, why)).nodes


CHANGES: dict[str, Change] = {
    "evict": _evict,
    "retire": _retire,
    "delete": _delete,
    "ban": _ban,
    "unban": _unban,
}

_SUMMARIES = {
    "evict": "Revoke nodes' certificates; they have to attest again",
    "retire": "Take nodes out of service for good",
    "delete": "Delete nodes that should never have been",
    "ban": "Ban nodes by everything that was proven of them alone; for operators of the whole deployment",
    "unban": "End the bans of nodes; for operators of the whole deployment",
}


def _changing(verb: str, change: Change) -> Operation:
    async def run(asked: Asked, given: NodeChange) -> Page:
        return Page(await change(asked.desk, given.seen(), given.why))

    return Operation(
        id=f"{verb}Nodes",
        method="POST",
        path=f"/nodes/{verb}",
        summary=_SUMMARIES[verb],
        role="admin",
        answers=CHANGED_NODE,
        is_page=True,
        given=NodeChange,
        run=run,
    )


OPERATIONS = (
    Operation(
        id="listNodes",
        method="GET",
        path="/nodes",
        summary="Nodes by id, which is by age",
        role="viewer",
        answers=NODE,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="showNode",
        method="GET",
        path="/nodes/{id}",
        summary="A node with its certificates, bindings, proven subjects and audit log",
        role="viewer",
        answers=NODE_IN_FULL,
        run=_show,
    ),
    *(_changing(verb, change) for verb, change in CHANGES.items()),
)
