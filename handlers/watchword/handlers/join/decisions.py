"""What became of a join that waited, as the journal has it: an operator's word, or its time. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.schemas.canonical import b64
from watchword.schemas.events import JoinDecided
from watchword.schemas.times import microseconds, rfc3339
from watchword.schemas.topics import NODE_EVENTS

Decision = Literal["approved", "rejected", "expired"]

_TYPES: dict[Decision, Literal["join.approved", "join.rejected", "join.expired"]] = {
    "approved": "join.approved",
    "rejected": "join.rejected",
    "expired": "join.expired",
}


def decided(decision: Decision, row: Mapping[str, Any], *, source: str, now: datetime) -> Entry:
    """Return the entry of a decision. `row` is the row of `join_requests` as it is after it.

    `private` has the key and what changed: that is all a rebuild needs, and a batch of thousands that
    expire together stays small.
    """
    is_operators = decision != "expired"
    event_id = new_event_id()
    request_id = str(row["id"])
    event = JoinDecided(
        id=str(event_id),
        type=_TYPES[decision],
        time=rfc3339(now),
        tenant=row["tenant"],
        join_request_id=request_id,
        attestor=row["attestor"],
        role=row["role"],
        pool=row["pool"],
        site=row["site"],
        csr_sha256=row["csr_sha256"].hex(),
        request_id=row["request_id"],
        expires_at=rfc3339(row["expires_at"]),
        decided_by=row["decided_by"] if is_operators else None,
        comment=(row["comment"] or "") if is_operators else "",
    )
    decided_at = row["decided_at"]
    private = {
        "row": {
            "attestor": row["attestor"],
            "subject": b64(row["subject"]),
            "csr_sha256": b64(row["csr_sha256"]),
            "state": row["state"],
            "version": row["version"],
            "decided_at": None if decided_at is None else microseconds(decided_at),
            "decided_by": row["decided_by"],
            "comment": row["comment"],
        }
    }
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=request_id.encode(),
        source=source,
        subject=f"join/{row['request_id']}",
        topic=NODE_EVENTS,
        private=private,
    )
