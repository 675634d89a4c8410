"""Reclaim grants: an operator lets one machine have one node back, once, by a proof that is named.

A grant stands in the place of what the node used up, of its bindings and of the rule against a weaker
proof; the evidence is judged in full. It names the node and what has to be proved, by which attestor;
nobody else can use it, and it expires.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import check_limit
from watchword.handlers.operators.standing import SeenNode, check_reason, lock_seen
from watchword.handlers.store import journal, operators, reclaims
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.handlers.store.rows import as_row
from watchword.schemas.events import NodeReclaimGranted
from watchword.schemas.requests import ATTESTOR_ID
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import NODE_EVENTS

LONGEST = timedelta(days=30)
_MAX_TEXT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimOrder:
    """Which node, and the proof that is expected: by which attestor, of which subject."""

    node: UUID
    attestor: str
    subject: Subject
    expires_in: timedelta = timedelta(days=1)

    def check(self) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        if not ATTESTOR_ID.fullmatch(self.attestor):
            message = f"attestor: a DNS label, not {self.attestor[:64]!r}"
            raise BadArgument(message)
        for text in (self.subject.kind, self.subject.value):
            if not 0 < len(text) <= _MAX_TEXT or not text.isprintable():
                message = f"proof: kind and value of 1 to {_MAX_TEXT} printable characters"
                raise BadArgument(message)
        if not timedelta(0) < self.expires_in <= LONGEST:
            message = f"a grant lasts at most {LONGEST.days} days"
            raise BadArgument(message)


async def grant_reclaim(database: Database, actor: Actor, order: ReclaimOrder) -> Row:
    """Let whoever proves the subject become that node, once; return the grant's row.

    Raises:
        BadArgument: no reason, or the order makes no sense.
        NotFound: there is no such node.
        Conflict: the node is banned or deleted.
    """
    check_reason(actor)
    order.check()
    async with database.transaction() as connection:
        locked = await lock_seen(connection, [SeenNode(order.node)])
        node = locked[order.node]
        if node.state in ("banned", "deleted"):
            message = f"node {node.id} is {node.state}: nothing to reclaim"
            raise Conflict(message)
        now = await operators.clock(connection)
        row = await reclaims.add(
            connection,
            grant_id=new_event_id(),
            node_id=order.node,
            tenant=node.tenant,
            attestor=order.attestor,
            subject=order.subject,
            expires_at=now + order.expires_in,
            now=now,
            who=actor.who,
            why=actor.why,
        )
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action="node.reclaim.grant",
            target=str(order.node),
            why=actor.why,
            detail={
                "grant": str(row["id"]),
                "attestor": order.attestor,
                "kind": order.subject.kind,
            },
        )
        await journal.append(connection, [_granted(actor, row, now)])
    return row


async def list_reclaims(
    database: Database,
    *,
    node: UUID | None = None,
    all_too: bool = False,
    after: UUID | None = None,
    limit: int = 100,
) -> list[Row]:
    """Return a page of grants by id, oldest first; only open ones unless `all_too`."""
    check_limit(limit)
    async with database.transaction() as connection:
        return await reclaims.list_grants(connection, node, after, limit, all_too=all_too)


async def revoke_reclaim(database: Database, actor: Actor, grant: UUID) -> Row:
    """Take a grant back; return its row.

    Raises:
        NotFound: there is none of that id.
        Conflict: it was used or revoked before.
    """
    async with database.transaction() as connection:
        row = await reclaims.revoke(connection, grant)
        now = await operators.clock(connection)
        detail = {"node": str(row["node_id"]), "attestor": row["attestor"], "kind": row["kind"]}
        act = Act("reclaim.revoked", row["tenant"], str(grant), row, detail)
        await record(connection, actor, act, now)
    return row


def _granted(actor: Actor, row: Mapping[str, Any], now: datetime) -> Entry:
    event_id, node = new_event_id(), str(row["node_id"])
    event = NodeReclaimGranted(
        id=str(event_id),
        time=rfc3339(now),
        tenant=row["tenant"],
        node_id=node,
        grant_id=str(row["id"]),
        attestor=row["attestor"],
        subject_kind=row["kind"],
        subject_sha256=row["subject"].hex(),
        expires_at=rfc3339(row["expires_at"]),
        who=actor.who,
        why=actor.why,
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=node.encode(),
        source=f"/watchword/{actor.cluster}/operator",
        subject=node,
        topic=NODE_EVENTS,
        private={"row": as_row(row)},
    )
