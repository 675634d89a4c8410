"""Keepers for tests, and what they have told."""

import json
from collections.abc import Callable
from typing import Any

from watchword.handlers.store.connection import Connection
from watchword.streams.keeper import KeeperOptions

Options = Callable[..., KeeperOptions]
"""Makes options; arguments change the ordinary ones."""


async def told(connection: Connection) -> list[dict[str, Any]]:
    """Return the summaries in the journal, in order."""
    rows = await connection.fetch(
        "SELECT value FROM journal WHERE type = 'security.join.refused.window' ORDER BY seq"
    )
    return [json.loads(row["value"]) for row in rows]
