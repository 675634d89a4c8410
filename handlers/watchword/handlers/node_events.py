"""What happens to a node after its join, as the journal has it: changes of state, revocations, conflicts. Pure.

The worker and operators' commands write the same events, so that one fold explains both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.handlers.rows import NodeRow, Pair, Renewable, RevokedCertificate
from watchword.schemas.canonical import b64
from watchword.schemas.events import (
    NodeCertificateRevoked,
    NodeChanged,
    NodeCommand,
    NodeKeyConflict,
)
from watchword.schemas.ids import Role
from watchword.schemas.times import microseconds, rfc3339
from watchword.schemas.topics import NODE_EVENTS

StateChange = Literal[
    "node.evicted",
    "node.banned",
    "node.unbanned",
    "node.retired",
    "node.deleted",
    "node.activated",
]


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes nodes, why, as what source, and when: the same for all that one transaction does."""

    who: str
    why: str
    source: str
    now: datetime
    traceparent: str | None = None
    """The span of the one request that did it, if one did."""


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A locked node as it was before the change."""

    id: str
    tenant: str
    pool: str
    site: str | None
    role: Role
    state: str
    version: int


def as_changed(node: NodeRow) -> ChangedNode:
    """Return the part of a node's row that a change is told with."""
    return ChangedNode(
        str(node.id), node.tenant, node.pool, node.site, node.role, node.state, node.version
    )


def of_node(
    event: NodeChanged | NodeCertificateRevoked | NodeKeyConflict | NodeCommand,
    event_id: UUID,
    change: Change,
    private: Mapping[str, Any],
) -> Entry:
    """Return the entry of an event of a node's, in the order of all that happens to that node."""
    return entry(
        event,
        event_id=event_id,
        occurred_at=change.now,
        key=event.node_id.encode(),
        source=change.source,
        subject=event.node_id,
        topic=NODE_EVENTS,
        private=dict(private),
        traceparent=change.traceparent,
    )


def node_changed(
    event_type: StateChange,
    was: ChangedNode,
    state: str,
    change: Change,
    *,
    unbound: Sequence[Pair] = (),
) -> Entry:
    """Return the entry of a node's new state; `unbound` are the bindings that it loses."""
    event_id = new_event_id()
    event = NodeChanged(
        id=str(event_id),
        type=event_type,
        time=rfc3339(change.now),
        tenant=was.tenant,
        node_id=was.id,
        role=was.role,
        pool=was.pool,
        site=was.site,
        was=was.state,
        who=change.who,
        why=change.why,
    )
    private: Mapping[str, Any] = {
        "node": {
            "id": was.id,
            "state": state,
            "version": was.version + 1,
            "updated_at": microseconds(change.now),
        },
        "unbound": [{"attestor": a, "subject": b64(s)} for a, s in unbound],
    }
    return of_node(event, event_id, change, private)


def certificate_revoked(revoked: RevokedCertificate, tenant: str, change: Change) -> Entry:
    """Return the entry of one certificate that was revoked just now."""
    event_id, node_id = new_event_id(), str(revoked.node_id)
    event = NodeCertificateRevoked(
        id=str(event_id),
        time=rfc3339(change.now),
        tenant=tenant,
        node_id=node_id,
        certificate_serial=revoked.serial.hex(),
        not_after=rfc3339(revoked.not_after),
        who=change.who,
        why=change.why,
    )
    return of_node(
        event,
        event_id,
        change,
        {
            "row": {
                "csr_sha256": b64(revoked.csr_sha256),
                "revoked_at": microseconds(change.now),
                "revoked_why": change.why,
            }
        },
    )


def key_conflict(
    contested: Renewable, *, csr_sha256: bytes, request_id: str, evicts: bool, change: Change
) -> Entry:
    """Return the entry of a second key that was renewed from one certificate."""
    event_id, node = new_event_id(), contested.node
    event = NodeKeyConflict(
        id=str(event_id),
        time=rfc3339(change.now),
        tenant=node.tenant,
        node_id=str(node.id),
        certificate_serial=contested.serial.hex(),
        csr_sha256=csr_sha256.hex(),
        request_id=request_id,
        evicts=evicts,
        who=change.who,
        why=change.why,
    )
    return of_node(
        event,
        event_id,
        change,
        {
            "row": {
                "csr_sha256": b64(contested.csr_sha256),
                "contested_at": microseconds(change.now),
            }
        },
    )
