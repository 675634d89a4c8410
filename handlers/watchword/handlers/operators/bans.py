"""Bans: of whatever evidence can prove (an EK, a token, a site, a key …), for as long as they stand.

A ban is by subject, so it follows a machine to any node id that it would get. It takes its lock
exclusively: a join that runs has committed before, and is found among the subject's nodes, or judges
after, and finds the ban. Nodes become `banned`, their certificates are revoked and approvals of those
subjects die, all in the ban's own transaction.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.join.decisions import decided
from watchword.handlers.journal import Entry
from watchword.handlers.node_events import ChangedNode, node_changed
from watchword.handlers.operators.actor import Act, Actor, act_entry
from watchword.handlers.operators.grants import check_limit
from watchword.handlers.operators.standing import (
    SeenNode,
    change_of,
    check_reason,
    check_seen,
    fit_to_ban,
    lock_seen,
    revoked_of,
)
from watchword.handlers.store import approvals, journal, operators, standing
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import ROOT

MAX_SUBJECTS = 200
"""Subjects that one ban can name."""

_MAX_TEXT = 512


@dataclass(frozen=True, slots=True)
class Banned:
    """What a ban, or its end, did."""

    bans: Sequence[Row]
    """The rows that were added, or taken away."""
    nodes: Sequence[Row]
    """The nodes that changed, as they are now."""
    requests: Sequence[Row] = ()
    """The waiting joins that it rejected."""


async def add_bans(database: Database, actor: Actor, subjects: Sequence[Subject]) -> Banned:
    """Ban subjects.

    Raises:
        BadArgument: no reason, no subject, too many, or one that no evidence could prove.
        Conflict: all of them are banned already.
    """
    check_reason(actor)
    _check(subjects)
    async with database.transaction() as connection:
        await standing.lock_bans(connection)
        nodes = await standing.nodes_of(connection, subjects)
        return await _ban(connection, actor, subjects, nodes)


async def ban_nodes(database: Database, actor: Actor, seen: Sequence[SeenNode]) -> Banned:
    """Ban nodes by every subject that was proven of them and of nobody else.

    A token, a site or an image is not one machine's: ban those by name if that is meant.

    Raises:
        BadArgument: no reason; none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed since it was seen, or is gone or banned already; nothing is changed.
    """
    check_reason(actor)
    ids = check_seen(seen)
    async with database.transaction() as connection:
        await standing.lock_bans(connection)
        locked = await lock_seen(connection, seen)
        if len(fit_to_ban(locked)) < len(ids):
            gone = next(was for was in locked.values() if was.state not in _BANNABLE)
            message = f"node {gone.id} is {gone.state}: nothing to ban"
            raise Conflict(message)
        found = await standing.subjects_of(connection, ids)
        own = {subject for pairs in found.values() for subject, is_own in pairs if is_own}
        nodes = {*ids, *await standing.nodes_of(connection, own)}
        return await _ban(connection, actor, sorted(own, key=_order), sorted(nodes))


async def remove_bans(database: Database, actor: Actor, subjects: Sequence[Subject]) -> Banned:
    """End bans. A node that no other ban holds is evicted then: it has to attest again.

    Raises:
        BadArgument: no reason, no subject, too many, or one that no evidence could prove.
        NotFound: none of them is banned.
    """
    check_reason(actor)
    _check(subjects)
    async with database.transaction() as connection:
        await standing.lock_bans(connection)
        nodes = await standing.nodes_of(connection, subjects)
        return await _unban(connection, actor, subjects, nodes)


async def unban_nodes(database: Database, actor: Actor, seen: Sequence[SeenNode]) -> Banned:
    """End every ban of a subject that was proven of these nodes and of nobody else.

    Raises:
        BadArgument: no reason; none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed since it was seen, or is not banned; nothing is changed.
    """
    check_reason(actor)
    ids = check_seen(seen)
    async with database.transaction() as connection:
        await standing.lock_bans(connection)
        locked = await lock_seen(connection, seen)
        for was in locked.values():
            if was.state != "banned":
                message = f"node {was.id} is {was.state}, not banned"
                raise Conflict(message)
        found = await standing.subjects_of(connection, ids)
        own = {subject for pairs in found.values() for subject, is_own in pairs if is_own}
        return await _unban(connection, actor, sorted(own, key=_order), ids)


async def list_bans(
    database: Database, *, kind: str | None = None, after: bytes | None = None, limit: int = 100
) -> list[Row]:
    """Return a page of bans in the order of their subjects' digests."""
    check_limit(limit)
    async with database.transaction() as connection:
        return await standing.list_bans(connection, kind, after, limit)


_BANNABLE = frozenset(("adopting", "active", "evicted"))


async def _ban(
    connection: Connection, actor: Actor, subjects: Sequence[Subject], nodes: Collection[UUID]
) -> Banned:
    locked = await standing.lock_nodes(connection, nodes)
    requests = await standing.undecided_of(connection, subjects)
    await approvals.lock_requests(connection, requests)
    now = await operators.clock(connection)
    bans = await standing.add_bans(connection, subjects, now, actor.who, actor.why)
    to_ban = {node: locked[node] for node in fit_to_ban(locked)}
    if not bans and not to_ban:
        message = "banned already"
        raise Conflict(message)
    change = change_of(actor, now)
    rows = await _change(connection, actor, to_ban, "banned", now)
    rejected = await approvals.decide(
        connection, requests, state="rejected", now=now, who=actor.who, comment=_of_ban(actor)
    )
    entries = await _said(connection, actor, "ban.added", bans, now)
    entries += [node_changed("node.banned", was, "banned", change) for was in to_ban.values()]
    entries += await revoked_of(connection, to_ban, change)
    for row in rejected.values():
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action="join.rejected",
            target=str(row["id"]),
            why=_of_ban(actor),
            detail={"tenant": row["tenant"], "attestor": row["attestor"]},
        )
        entries.append(decided("rejected", row, source=change.source, now=now))
    await journal.append(connection, entries)
    return Banned(bans, rows, list(rejected.values()))


async def _unban(
    connection: Connection, actor: Actor, subjects: Sequence[Subject], nodes: Collection[UUID]
) -> Banned:
    locked = await standing.lock_nodes(connection, nodes)
    now = await operators.clock(connection)
    bans = await standing.remove_bans(connection, subjects)
    held = await standing.subjects_of(connection, locked)
    every = {subject for pairs in held.values() for subject, _ in pairs}
    still = await standing.banned(connection, every)
    free = {
        node: was
        for node, was in locked.items()
        if was.state == "banned"
        and not any(subject.digest in still for subject, _ in held.get(node, ()))
    }
    if not bans and not free:
        message = "not banned"
        raise NotFound(message)
    change = change_of(actor, now)
    rows = await _change(connection, actor, free, "evicted", now)
    entries = await _said(connection, actor, "ban.removed", bans, now)
    entries += [node_changed("node.unbanned", was, "evicted", change) for was in free.values()]
    await journal.append(connection, entries)
    return Banned(bans, rows)


async def _change(
    connection: Connection,
    actor: Actor,
    nodes: dict[UUID, ChangedNode],
    state: str,
    now: datetime,
) -> list[Row]:
    action = "node.ban" if state == "banned" else "node.unban"
    return await standing.change(
        connection, nodes, state=state, now=now, who=actor.who, action=action, why=actor.why
    )


async def _said(
    connection: Connection, actor: Actor, event_type: str, bans: Sequence[Row], now: datetime
) -> list[Entry]:
    """Audit bans and return their entries."""
    entries: list[Entry] = []
    for row in bans:
        detail = {"kind": row["kind"], "value": row["value"]}
        target = row["subject"].hex()
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action=event_type,
            target=target,
            why=actor.why,
            detail=detail,
        )
        entries.append(act_entry(actor, Act(event_type, ROOT, target, row, detail), now))
    return entries


def _check(subjects: Sequence[Subject]) -> None:
    if not 0 < len(subjects) <= MAX_SUBJECTS or len(set(subjects)) < len(subjects):
        message = f"1 to {MAX_SUBJECTS} subjects, each once"
        raise BadArgument(message)
    for subject in subjects:
        for text in (subject.kind, subject.value):
            if not 0 < len(text) <= _MAX_TEXT or not text.isprintable():
                message = f"kind and value: 1 to {_MAX_TEXT} printable characters"
                raise BadArgument(message)


def _of_ban(actor: Actor) -> str:
    return f"banned: {actor.why}"[:1000]


def _order(subject: Subject) -> tuple[str, str]:
    return (subject.kind, subject.value)
