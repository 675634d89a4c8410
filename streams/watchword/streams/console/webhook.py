"""Somebody is told when joins begin to wait for an operator: one signed POST at a time, and never in a flood.

It tells how many wait and since when, and nothing of the machines. Each console of a deployment tells; a
receiver that wants one call drops repeats by `oldest` and `waiting`.
"""

import asyncio
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import httpx
import structlog

from watchword.handlers.errors import WatchwordError
from watchword.handlers.operators.overview import show_overview
from watchword.handlers.store.connection import Database
from watchword.schemas.times import rfc3339

_log = structlog.get_logger(__name__)

SIGNATURE_HEADER: Final = "Watchword-Signature"
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 5.0
_TRIES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Who is told, the key that signs it, and the least time between two calls."""

    url: str
    key: bytes = field(repr=False)
    rest_s: float = 60.0
    public_url: str = ""
    look_s: float = _LOOK_S

    async def keep(self, database: Database) -> None:
        """Look for ever, and tell when there is something new."""
        told: datetime | None = None
        while True:
            try:
                counts = await show_overview(database, None)
            except WatchwordError:
                await asyncio.sleep(self.look_s)
                continue
            newest = counts["newest_waiting"]
            if newest is not None and (told is None or newest > told):
                await self._tell(counts)
                told = newest
                await asyncio.sleep(self.rest_s)
            else:
                await asyncio.sleep(self.look_s)

    async def _tell(self, counts: dict[str, Any]) -> None:
        body = json.dumps(
            {
                "schemaVersion": 1,
                "type": "joins.waiting",
                "time": rfc3339(counts["now"]),
                "waiting": counts["waiting"],
                "oldest": rfc3339(counts["oldest_waiting"]),
                "url": f"{self.public_url}/waiting",
            }
        ).encode()
        signature = "sha256=" + hmac.digest(self.key, body, sha256).hex()
        headers = {"Content-Type": "application/json", SIGNATURE_HEADER: signature}
        for nth in range(_TRIES):
            try:
                async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
                    answer = await client.post(self.url, content=body, headers=headers)
                if answer.is_success:
                    return
                said = str(answer.status_code)
            except httpx.HTTPError as error:
                said = type(error).__name__
            _log.warning("webhook was not taken", attempt=nth + 1, said=said)
            await asyncio.sleep(self.look_s * 2**nth)
