"""What nodes may from now on: evicted, retired, deleted, banned, unbanned.

An evicted node must attest again, a banned one may not, a retired or deleted one is gone: it loses its
bindings, and what it used up stays used up. Each act revokes the nodes' certificates in its own
transaction, so that renewals stop at once. Several nodes change all together or not at all.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.journal import Entry
from watchword.handlers.node_events import (
    Change,
    ChangedNode,
    StateChange,
    certificate_revoked,
    node_changed,
)
from watchword.handlers.operators.actor import Actor
from watchword.handlers.store import journal, operators, standing
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.operators import Row

MAX_TOGETHER = 5000
"""Nodes that one act can be about: its transaction has ten seconds."""

Verb = Literal["evict", "retire", "delete"]


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as an operator saw it; without a version it is only asked whether the act is possible."""

    id: UUID
    version: int | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    event: StateChange
    state: str
    possible_from: frozenset[str]
    unbinds: bool


_RULES: Mapping[Verb, _Rule] = {
    "evict": _Rule("node.evicted", "evicted", frozenset(("adopting", "active")), unbinds=False),
    "retire": _Rule(
        "node.retired", "retired", frozenset(("adopting", "active", "evicted")), unbinds=True
    ),
    "delete": _Rule(
        "node.deleted",
        "deleted",
        frozenset(("adopting", "active", "evicted", "banned", "retired")),
        unbinds=True,
    ),
}


async def change_nodes(
    database: Database, actor: Actor, verb: Verb, seen: Sequence[SeenNode]
) -> list[Row]:
    """Evict, retire or delete nodes; return their rows.

    Raises:
        BadArgument: no reason is given; none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed since it was seen, or its state does not allow it; nothing is changed.
    """
    check_reason(actor)
    rule, ids = _RULES[verb], check_seen(seen)
    async with database.transaction() as connection:
        locked = await lock_seen(connection, seen)
        now = await operators.clock(connection)
        for one in seen:
            if (state := locked[one.id].state) not in rule.possible_from:
                message = f"node {one.id} is {state}: nothing to {verb}"
                raise Conflict(message)
        unbound = await standing.unbind(connection, ids) if rule.unbinds else {}
        change = change_of(actor, now)
        rows = await standing.change(
            connection,
            ids,
            state=rule.state,
            now=now,
            who=actor.who,
            action=f"node.{verb}",
            why=actor.why,
        )
        entries = [
            node_changed(rule.event, was, rule.state, change, unbound=unbound.get(node, ()))
            for node, was in locked.items()
        ]
        entries += await revoked_of(connection, locked, change)
        await journal.append(connection, entries)
    return rows


def check_reason(actor: Actor) -> None:
    """Raise `BadArgument` if nothing is said for the next operator."""
    if not actor.why.strip():
        message = "say why, for the next operator"
        raise BadArgument(message)


def check_seen(seen: Sequence[SeenNode]) -> list[UUID]:
    """Return the ids; raises `BadArgument` for none, too many, or one of them twice."""
    ids = [one.id for one in seen]
    if not 0 < len(ids) <= MAX_TOGETHER or len(set(ids)) < len(ids):
        message = f"1 to {MAX_TOGETHER} nodes, each once"
        raise BadArgument(message)
    return ids


async def lock_seen(connection: Connection, seen: Sequence[SeenNode]) -> dict[UUID, ChangedNode]:
    """Lock nodes; raises `NotFound`, or `Conflict` if one has changed since it was seen."""
    locked = await standing.lock_nodes(connection, [one.id for one in seen])
    if missing := [str(one.id) for one in seen if one.id not in locked]:
        message = f"no node {', '.join(missing)}"
        raise NotFound(message)
    for one in seen:
        version = locked[one.id].version
        if one.version is not None and one.version != version:
            message = (
                f"node {one.id} has changed since it was seen: version {version}, not {one.version}"
            )
            raise Conflict(message)
    return locked


async def revoked_of(
    connection: Connection, nodes: Mapping[UUID, ChangedNode], change: Change
) -> list[Entry]:
    """Revoke the certificates of locked nodes; return what the journal is told."""
    revoked = await standing.revoke(connection, nodes, change.now, change.why)
    return [certificate_revoked(one, nodes[one.node_id].tenant, change) for one in revoked]


def change_of(actor: Actor, now: datetime) -> Change:
    """Return who changes nodes, and why."""
    return Change(actor.who, actor.why, f"/watchword/{actor.cluster}/operator", now)


def fit_to_ban(nodes: Mapping[UUID, ChangedNode]) -> Collection[UUID]:
    """Return the nodes that a ban changes: those that are gone stay gone."""
    states = ("adopting", "active", "evicted")
    return [node for node, was in nodes.items() if was.state in states]
