"""Joins that wait for an operator: listed, shown, approved, rejected.

An operator agrees to what they saw: every decision names the version of the request that was shown, and
a request that has changed since, or was decided by somebody else, is a `Conflict`. Several requests
are decided all together or not at all.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.join.decisions import decided
from watchword.handlers.operators.actor import Actor
from watchword.handlers.store import approvals, journal, operators
from watchword.handlers.store.approvals import Locked, RequestFilter
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.operators import Row

STATES = ("pending", "approved", "rejected", "expired", "consumed")
MAX_PAGE = 1000
MAX_TOGETHER = 200
"""Requests that one decision can be about: nobody has looked at more."""

_DIGITS = re.compile(r"[0-9a-f]{1,64}")

_CLAIMED = "claimed"
"""Facts of an attestor whose names begin so are the machine's own words."""

_FROM: Mapping[str, Collection[str]] = {
    "approved": ("pending",),
    "rejected": ("pending", "approved"),
}
"""Of which states each decision can be made. A rejection takes back an approval that was not used yet."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as an operator saw it."""

    id: UUID
    version: int


async def list_requests(
    database: Database, wanted: RequestFilter, *, limit: int = 100
) -> list[Row]:
    """Return a page of join requests by id, oldest first, in the form of `show_requests`.

    Raises:
        BadArgument: a state that there is not, a CSR that is no beginning of a SHA-256, or a page that is too long.
    """
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)
    if wanted.csr is not None:
        wanted = replace(wanted, csr=_csr_prefix(wanted.csr))
    async with database.transaction() as connection:
        rows = await approvals.list_requests(connection, wanted, limit)
    return [shown(row) for row in rows]


def _csr_prefix(text: str) -> str:
    """Return the digits of a fingerprint that a person copied, in groups or not."""
    digits = "".join(text.split()).replace(":", "").lower()
    if _DIGITS.fullmatch(digits) is None:
        message = "csr: the beginning of its SHA-256, 1 to 64 hexadecimal digits"
        raise BadArgument(message)
    return digits


async def show_requests(database: Database, ids: Sequence[UUID]) -> list[Row]:
    """Return requests in the order asked for: what approval grants, what is proven, what is only claimed.

    Each has `id`, `state`, `version`, `attestor`, `csr_sha256` (the fingerprint that the agent prints),
    `grants`, `facts`, `unproven_claims`, times, who decided, and `audit`.

    Raises:
        BadArgument: none, too many, or one of them twice.
        NotFound: there is none of an id.
    """
    _check_ids(ids)
    async with database.transaction(isolation="repeatable_read") as connection:
        found = await approvals.requests(connection, ids)
        _check_found(ids, found)
        return [
            shown(found[one]) | {"audit": await approvals.audit_of(connection, one)} for one in ids
        ]


async def approve(database: Database, actor: Actor, seen: Sequence[Seen]) -> list[Row]:
    """Let machines join with exactly the grants that were seen; `actor.why` is the comment.

    A machine that is approved comes again by itself and consumes its approval.

    Raises:
        BadArgument: none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed, was decided by somebody else, or has expired; nothing is approved.
    """
    return await _decide(database, actor, seen, "approved")


async def reject(database: Database, actor: Actor, seen: Sequence[Seen]) -> list[Row]:
    """Refuse machines that wait, or take an approval back that was not used; `actor.why` says why.

    Raises:
        BadArgument: no comment; none, too many, or one of them twice.
        NotFound: there is none of an id.
        Conflict: one has changed, was decided by somebody else, or has expired; nothing is rejected.
    """
    if not actor.why.strip():
        message = "a rejection needs a comment: the next operator asks why"
        raise BadArgument(message)
    return await _decide(database, actor, seen, "rejected")


async def _decide(
    database: Database,
    actor: Actor,
    seen: Sequence[Seen],
    decision: Literal["approved", "rejected"],
) -> list[Row]:
    ids = [one.id for one in seen]
    _check_ids(ids)
    async with database.transaction() as connection:
        locked = await approvals.lock_requests(connection, ids)
        # Read under the locks: whoever was waited for has done what they did before now.
        now = await operators.clock(connection)
        _check_found(ids, locked)
        for one in seen:
            _check_unchanged(one, locked[one.id], decision, now)
        rows = await approvals.decide(
            connection, ids, state=decision, now=now, who=actor.who, comment=actor.why
        )
        await _record(connection, actor, decision, [rows[one] for one in ids], now)
    return [rows[one] for one in ids]


async def _record(
    connection: Connection,
    actor: Actor,
    decision: Literal["approved", "rejected"],
    rows: Sequence[Row],
    now: datetime,
) -> None:
    for row in rows:
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action=f"join.{decision}",
            target=str(row["id"]),
            why=actor.why,
            detail={
                "tenant": row["tenant"],
                "attestor": row["attestor"],
                "csrSha256": row["csr_sha256"].hex(),
                "version": row["version"],
            },
        )
    source = f"/watchword/{actor.cluster}/operator"
    await journal.append(
        connection, [decided(decision, row, source=source, now=now) for row in rows]
    )


def _check_ids(ids: Sequence[UUID]) -> None:
    if not 0 < len(ids) <= MAX_TOGETHER or len(set(ids)) < len(ids):
        message = f"1 to {MAX_TOGETHER} join requests, each once"
        raise BadArgument(message)


def _check_found(ids: Sequence[UUID], found: Collection[UUID]) -> None:
    if missing := [str(one) for one in ids if one not in found]:
        message = f"no join request {', '.join(missing)}"
        raise NotFound(message)


def _check_unchanged(seen: Seen, locked: Locked, decision: str, now: datetime) -> None:
    if locked.state not in _FROM[decision]:
        message = f"join request {seen.id} is {locked.state} already"
    elif locked.version != seen.version:
        message = f"join request {seen.id} has changed since it was seen: version {locked.version}, not {seen.version}"
    elif locked.expires_at <= now:
        message = f"join request {seen.id} has expired; the machine's next try waits anew"
    else:
        return
    raise Conflict(message)


def shown(row: Mapping[str, Any]) -> Row:
    """Return a request as operators see it, with what is proven apart from what is claimed."""
    snapshot: dict[str, Any] = row["snapshot"]
    facts: dict[str, str] = row["facts"]
    kinds: list[str] | None = snapshot["allowedKinds"]
    return {
        "id": row["id"],
        "state": row["state"],
        "version": row["version"],
        "attestor": row["attestor"],
        "tenant": row["tenant"],
        "pool": row["pool"],
        "site": row["site"],
        "role": row["role"],
        "csr_sha256": row["csr_sha256"],
        "requested_at": row["requested_at"],
        "expires_at": row["expires_at"],
        "grants": {
            "tenant": snapshot["tenant"],
            "pool": snapshot["pool"],
            "site": snapshot["site"],
            "role": snapshot["role"],
            "allowed_kinds": kinds,
            "unrestricted_kinds": kinds is None,
            "rekeys_node": snapshot["node"],
            "node_key_uri": snapshot["nodeKeyUri"],
            "token": snapshot["token"],
            "subjects": [f"{kind} {value}" for kind, value in snapshot["subjects"]],
        },
        "facts": {n: v for n, v in facts.items() if not n.startswith(_CLAIMED)},
        "unproven_claims": row["claims"]
        | {n: v for n, v in facts.items() if n.startswith(_CLAIMED)},
        "request_id": row["request_id"],
        "decided_at": row["decided_at"],
        "decided_by": row["decided_by"],
        "comment": row["comment"],
    }
