"""Commands as the core has them under its locks."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from tests.support.crypto import NODE_ID, NOW
from watchword.handlers.rows import CommandRow, LockedCommand


def locked(*, kinds: Any = None, payload: bytes = b"x", **row: Any) -> LockedCommand:  # noqa: ANN401
    """Return a queued command of a node that may be told anything."""
    made = CommandRow(
        id=UUID(str(uuid7())),
        node_id=UUID(NODE_ID),
        tenant="acme",
        kind="disk.wipe",
        payload_sha256=bytes(32),
        payload_bytes=len(payload),
        state="queued",
        version=1,
        reason=None,
        exit_status=None,
        enqueued_at=NOW,
        enqueued_by="ada",
        why="a test",
        expires_at=NOW + timedelta(hours=1),
        dispatched_at=None,
        certificate_serial=None,
        ended_at=None,
    )
    return LockedCommand(replace(made, **row), payload, b"\x0f" * 16, kinds)
