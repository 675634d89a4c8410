"""Purging: nothing of a machine is left but digests that keep it, or its copies, from coming back twice.

Only nodes that are gone are purged. Their ids, places, states and times stay, and so do claims on CSRs and
keys, uses, bans and the digests in events: what section 2 promises rests on them (docs/guides/privacy.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators.actor import Act, Actor, record_all
from watchword.handlers.operators.places import label
from watchword.handlers.operators.redaction import redacted, redacted_value
from watchword.handlers.operators.standing import SeenNode, check_reason, check_seen, lock_seen
from watchword.handlers.store import operators, purging
from watchword.handlers.store.connection import Connection, Database

MOST_TOGETHER = 500
"""Nodes that one purge can be about: each has a few events, which are read and written again."""

_GONE = frozenset(("retired", "deleted"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which nodes; what is not None must fit. A filter alone finds those that are gone and not purged yet."""

    nodes: Sequence[UUID] = ()
    subject: Subject | None = None
    digest: bytes | None = None
    """A subject's digest, or the SHA-256 of a public key or of a hardware key's name."""
    tenant: str | None = None
    older_than: timedelta | None = None
    """Gone for at least so long."""

    def check(self) -> None:
        """Raise `BadArgument` for what makes no sense."""
        named = (bool(self.nodes), self.subject is not None, self.digest is not None)
        if sum(named) > 1:
            message = "nodes, or a subject, or a digest"
            raise BadArgument(message)
        if not any((*named, self.tenant is not None, self.older_than is not None)):
            message = "say whom: nodes, a subject, a digest, --tenant or --older-than"
            raise BadArgument(message)
        if self.tenant is not None:
            label(self.tenant, "tenant")
        if self.older_than is not None and self.older_than < timedelta(0):
            message = "older than nothing"
            raise BadArgument(message)


@dataclass(frozen=True, slots=True)
class Found:
    """What a purge would be about."""

    nodes: Sequence[SeenNode]
    counts: Mapping[str, int]
    """Rows with something of their machines, by table."""


async def find(database: Database, wanted: Wanted) -> Found:
    """Return what a purge would take away; nothing is changed.

    Raises:
        BadArgument: nobody is named, or more than `MOST_TOGETHER` are meant.
        NotFound: there is no such node.
        Conflict: one of them is not gone: it has to be deleted before.
    """
    wanted.check()
    async with database.transaction(isolation="repeatable_read") as connection:
        rows = await _rows(connection, wanted)
        if not rows:
            message = "nothing to purge"
            raise NotFound(message)
        if len(rows) > MOST_TOGETHER:
            message = f"more than {MOST_TOGETHER} nodes: narrow it, or do it by --tenant"
            raise BadArgument(message)
        for node, state, _ in rows:
            if state not in _GONE:
                message = f"node {node} is {state}: delete it first"
                raise Conflict(message)
        ids = [node for node, _, _ in rows]
        counts = await purging.counts(connection, ids)
    return Found([SeenNode(node, version) for node, _, version in rows], counts)


async def _rows(connection: Connection, wanted: Wanted) -> list[tuple[UUID, str, int]]:
    digests: list[bytes | None] = [wanted.digest]
    if wanted.subject is not None:
        # By its digest, and where it stands in a column, by its value.
        digests = [wanted.subject.digest, sha256(wanted.subject.value.encode()).digest()]
    found: dict[UUID, tuple[UUID, str, int]] = {}
    for digest in digests:
        for row in await purging.find(
            connection,
            ids=list(wanted.nodes) or None,
            tenant=wanted.tenant,
            older_than=wanted.older_than,
            subject=digest,
            purged_too=bool(wanted.nodes),
            limit=MOST_TOGETHER + 1,
        ):
            found[row[0]] = row
    if missing := [str(node) for node in wanted.nodes if node not in found]:
        message = f"no node {', '.join(missing)}"
        raise NotFound(message)
    return [found[node] for node in sorted(found)]


async def purge(database: Database, actor: Actor, seen: Sequence[SeenNode]) -> Mapping[str, int]:
    """Take away what is known of the machines of nodes that are gone; return the counts.

    Raises:
        BadArgument: no reason; none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed since it was seen, or is not gone; nothing is changed.
    """
    check_reason(actor)
    ids = check_seen(seen)
    if len(ids) > MOST_TOGETHER:
        message = f"at most {MOST_TOGETHER} nodes"
        raise BadArgument(message)
    async with database.transaction() as connection:
        locked = await lock_seen(connection, seen)
        for node in locked.values():
            if node.state not in _GONE:
                message = f"node {node.id} is {node.state}: delete it first"
                raise Conflict(message)
        now = await operators.clock(connection)
        counts = await purging.counts(connection, ids)
        rows, events = await purging.purge(connection, ids, now, redacted, redacted_value)
        acts = [
            Act("node.purged", row["tenant"], str(row["id"]), row, {"nodes": len(rows)})
            for row in rows
        ]
        await record_all(connection, actor, acts, now)
    return {"nodes": len(rows), **counts, "events": events}
