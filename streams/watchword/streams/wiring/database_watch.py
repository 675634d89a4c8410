"""Whether a worker may judge: the schema is this release's, and the clock agrees with PostgreSQL's."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog

from watchword.handlers.errors import ConfigRefused, Unavailable, WatchwordError
from watchword.handlers.store import deployment
from watchword.handlers.store.author_roles import missing_author_roles
from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import status
from watchword.schemas.ids import AttestorId

_log = structlog.get_logger(__name__)

_REST_S = 5.0
_IMPATIENT_REST_S = 0.5


class DatabaseWatch:
    """Looks at the database now and then; what it found last is there without waiting."""

    def __init__(self, database: Database, url: str, with_sql: Sequence[AttestorId] = ()) -> None:
        """Know nothing yet. `with_sql` are the attestors that bring their own SQL, which needs a role each."""
        self._database = database
        self._url = url
        self._with_sql = with_sql
        self._problem: str | None = "PostgreSQL has not been reached yet"
        self._skew_s: float | None = None

    def problem(self) -> str | None:
        """Return why nothing can be judged; None once schema and roles were found to be what this worker needs."""
        return self._problem

    def clock_skew(self) -> float | None:
        """Return by how many seconds our clock is ahead of PostgreSQL's; None if that is unknown."""
        return self._skew_s

    async def look(self) -> None:
        """Look once.

        Raises:
            StoreUnavailable: PostgreSQL is away; what was known stays.
            ConfigRefused: the schema is one that this release cannot work on.
        """
        if self._problem is not None:
            lacking = [m.number for m in await status(self._url) if m.applied is None]
            if lacking:
                self._problem = "the schema is older than this release: run `watchword db migrate`"
                return
        before, began = datetime.now(UTC), time.monotonic()
        async with self._database.transaction() as connection:
            theirs = await deployment.clock(connection)
            lacking_role = await missing_author_roles(connection, self._with_sql)
        # Their answer is of some moment in between; the middle is off by half the way at most.
        ours = before.timestamp() + (time.monotonic() - began) / 2
        self._skew_s = ours - theirs.timestamp()
        self._problem = _lacking_roles(lacking_role)

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


def _lacking_roles(attestors: Sequence[AttestorId]) -> str | None:
    """Return in a sentence why attestors cannot run their SQL, if some cannot."""
    if not attestors:
        return None
    commands = ", ".join(f"`watchword db attestor-role {attestor}`" for attestor in attestors)
    return f"attestors that bring their own SQL have no role of the database that we may take on: run {commands}"


@asynccontextmanager
async def watching(
    database: Database, url: str, with_sql: Sequence[AttestorId] = ()
) -> AsyncGenerator[DatabaseWatch]:
    """Keep looking inside the block."""
    watch = DatabaseWatch(database, url, with_sql)
    looking = asyncio.create_task(watch.keep())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.wait([looking])
