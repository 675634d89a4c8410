"""Statements that attestors' authors have written: each with its author's role, in somebody's transaction."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from watchword.handlers.store.connection import Database
from watchword.handlers.store.join_reads import ReadingConnection
from watchword.handlers.store.translate import FOREIGN, is_away, translated

_IDENTITY = """
SELECT concat_ws(' ', pg_current_xact_id()::text, current_user, current_setting('search_path'))
"""

_BACK = "SELECT current_user::text, set_config('role', 'none', true)"
"""Whose role the author's statement has left, and then our own again (`SET LOCAL ROLE NONE`)."""


class AuthorSql(ReadingConnection):
    """Part of `join.ports.Session`; implements `join.ports.Raw`."""

    async def transaction_id(self) -> str:
        """See `join.ports.Session`."""
        return str((await self._fetch(_IDENTITY))[0][0])

    async def raw(
        self, statement: str, arguments: Sequence[object], *, role: str, rows: bool
    ) -> Any:  # noqa: ANN401 - what the statement returns
        """See `join.ports.Session`; what is the author's own fault passes as it is, for them to see."""
        try:
            async with self._turn:
                # For this statement alone: the typed reads beside it are ours. An error ends the
                # transaction, and with the savepoint the role goes too.
                await self.connection.execute(f"SET LOCAL ROLE {role}")
                # `fetch` and not `execute`: the extended protocol takes one statement only.
                found = await self.connection.fetch(statement, *arguments)
                speaker, _ = (await self.connection.fetch(_BACK))[0]
        except FOREIGN as error:
            if self.connection.is_closed() or is_away(error):
                raise self._translated(error) from error
            raise
        if speaker != role:
            message = "it took on another role"
            raise PermissionError(message)
        return found if rows else f"OK {len(found)}"


class Scratch:
    """Transactions that nothing is kept of, one after the other, on a connection that is opened when the first begins."""

    def __init__(self, database: Database) -> None:
        """Open nothing yet."""
        self._database = database
        self._open: AuthorSql | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AuthorSql]:
        """Give a transaction that is rolled back, whatever came of it.

        Raises:
            StoreUnavailable: PostgreSQL is away.
        """
        if self._open is None or self._open.connection.is_closed():
            self._open = AuthorSql(await self._database.connect(by_key=True))
        opened = self._open
        async with translated():
            started = opened.connection.transaction()
            await started.start()
        try:
            yield opened
        finally:
            try:
                async with translated():
                    await started.rollback()
            except BaseException:
                # What ends with its connection is rolled back too.
                opened.connection.terminate()
                raise

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._open is not None:
            self._open.connection.terminate()
