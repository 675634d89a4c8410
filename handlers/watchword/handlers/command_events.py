"""What happens to a command, as the journal has it. Pure.

Workers, operators' commands and the keeper write the same events, so that one fold explains all: each has the
whole row as it is afterwards. What a command says to its node is in none of them.
"""

from datetime import datetime

from watchword.handlers.journal import Entry, new_event_id
from watchword.handlers.node_events import Change, of_node
from watchword.handlers.rows import CommandRow
from watchword.schemas.canonical import b64
from watchword.schemas.events import CommandEventType, NodeCommand
from watchword.schemas.times import microseconds, rfc3339


def command_event(
    event_type: CommandEventType, row: CommandRow, change: Change, *, request_id: str | None = None
) -> Entry:
    """Return the entry of what has become of a command; `row` is its row as it is after it."""
    event_id, node = new_event_id(), str(row.node_id)
    serial = row.certificate_serial
    event = NodeCommand(
        id=str(event_id),
        type=event_type,
        time=rfc3339(change.now),
        tenant=row.tenant,
        node_id=node,
        command_id=str(row.id),
        kind=row.kind,
        payload_sha256=row.payload_sha256.hex(),
        payload_bytes=row.payload_bytes,
        state=row.state,
        reason=row.reason,
        exit_status=row.exit_status,
        enqueued_by=row.enqueued_by,
        expires_at=rfc3339(row.expires_at),
        certificate_serial=None if serial is None else serial.hex(),
        dispatched_at=None if row.dispatched_at is None else rfc3339(row.dispatched_at),
        request_id=request_id,
        who=change.who,
        why=change.why,
    )
    return of_node(
        event,
        event_id,
        change,
        {
            "row": {
                "id": str(row.id),
                "node_id": node,
                "tenant": row.tenant,
                "kind": row.kind,
                "payload_sha256": b64(row.payload_sha256),
                "payload_bytes": row.payload_bytes,
                "state": row.state,
                "version": row.version,
                "reason": row.reason,
                "exit_status": row.exit_status,
                "enqueued_at": microseconds(row.enqueued_at),
                "enqueued_by": row.enqueued_by,
                "why": row.why,
                "expires_at": microseconds(row.expires_at),
                "dispatched_at": _micros(row.dispatched_at),
                "certificate_serial": None if serial is None else b64(serial),
                "ended_at": _micros(row.ended_at),
            }
        },
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)
