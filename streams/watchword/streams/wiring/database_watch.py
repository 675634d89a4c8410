"""Whether a worker may judge: the schema is this release's, and the clock agrees with PostgreSQL's."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog

from watchword.handlers.errors import ConfigRefused, Unavailable, WatchwordError
from watchword.handlers.store import deployment
from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import status

_log = structlog.get_logger(__name__)

_REST_S = 5.0
_IMPATIENT_REST_S = 0.5


class DatabaseWatch:
    """Looks at the database now and then; what it found last is there without waiting."""

    def __init__(self, database: Database, url: str) -> None:
        """Know nothing yet."""
        self._database = database
        self._url = url
        self._problem: str | None = "PostgreSQL has not been reached yet"
        self._skew_s: float | None = None

    def problem(self) -> str | None:
        """Return why nothing can be judged; None once the schema was found to be this release's."""
        return self._problem

    def clock_skew(self) -> float | None:
        """Return by how many seconds our clock is ahead of PostgreSQL's; None if that is unknown."""
        return self._skew_s

    async def look(self) -> None:
        """Look once.

        Raises:
            StoreUnavailable: PostgreSQL is away; what was known stays.
            ConfigRefused: the schema is of another release.
        """
        if self._problem is not None:
            lacking = [m.number for m in await status(self._url) if m.applied is None]
            if lacking:
                self._problem = "the schema is older than this release: run `watchword db migrate`"
                return
        before, began = datetime.now(UTC), time.monotonic()
        async with self._database.transaction() as connection:
            theirs = await deployment.clock(connection)
        # Their answer is of some moment in between; the middle is off by half the way at most.
        ours = before.timestamp() + (time.monotonic() - began) / 2
        self._skew_s = ours - theirs.timestamp()
        self._problem = None

    async def keep(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except Unavailable as error:
                _log.warning("postgresql is away", error=str(error))
            except ConfigRefused as error:
                self._problem = str(error)
            except WatchwordError as error:
                _log.error("cannot look at the database", error=str(error))
            await asyncio.sleep(_REST_S if self._problem is None else _IMPATIENT_REST_S)


@asynccontextmanager
async def watching(database: Database, url: str) -> AsyncGenerator[DatabaseWatch]:
    """Keep looking inside the block."""
    watch = DatabaseWatch(database, url)
    looking = asyncio.create_task(watch.keep())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.wait([looking])
