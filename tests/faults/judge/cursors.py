"""The relay's cursors never go back: watched while the round is played."""

import asyncio
import contextlib
from collections.abc import Callable

import asyncpg

from tests.faults.judge.findings import Findings
from tests.faults.judge.tables import AWAY

_LOOK_S = 0.2

_LOOK = """
SELECT shard, owner, pg_snapshot_xmax(from_snapshot)::text::bigint AS seen,
    pg_postmaster_start_time()::text || (SELECT coalesce(max(backend_start)::text, '') FROM pg_stat_activity
        WHERE backend_type = 'checkpointer') AS server
FROM watchword.relay_cursors
"""
# A server whose disk is full recovers from its crash under the same postmaster: only its processes are new.


class CursorWatch:
    """Looks at the cursors a few times a second."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        """Take what returns the superuser's address of the server that is in charge now."""
        self._dsn = dsn
        self._seen: dict[int, tuple[int, str]] = {}
        self._server = ""
        self.findings = Findings()
        self.looks = 0

    async def run(self) -> None:
        """Look until cancelled, whatever PostgreSQL does."""
        while True:
            with contextlib.suppress(*AWAY):
                connection = await asyncpg.connect(self._dsn(), timeout=3)
                try:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(_LOOK_S)
                finally:
                    connection.terminate()
            await asyncio.sleep(_LOOK_S)

    async def _look(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        rows = await connection.fetch(_LOOK, timeout=5)
        self.looks += 1
        for row in rows:
            if row["server"] != self._server:
                # A crash may forget moves that were not waited for: events come again, none is lost.
                self._server, self._seen = row["server"], {}
            before, whose = self._seen.get(row["shard"], (0, ""))
            if row["seen"] < before:
                self.findings.wrong(
                    "cursor of the relay went back",
                    f"shard {row['shard']}: {whose}, {row['owner']}",
                )
            self._seen[row["shard"]] = (row["seen"], row["owner"] or "")
