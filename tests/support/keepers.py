"""Keepers for tests, and what they have told."""

import json
from collections.abc import Callable
from typing import Any

from watchword.handlers.store.connection import Connection
from watchword.streams.keeper import KeeperOptions

Options = Callable[..., KeeperOptions]
"""Makes options; arguments change the ordinary ones."""


async def told(
    connection: Connection, kind: str = "security.join.refused.window"
) -> list[dict[str, Any]]:
    """Return the summaries in the journal, or what else is asked for, in order."""
    rows = await connection.fetch("SELECT value FROM journal WHERE type = $1 ORDER BY seq", kind)
    return [json.loads(row["value"]) for row in rows]
