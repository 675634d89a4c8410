"""Databases for tests on one PostgreSQL server: each a copy of one that has our schema."""

import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from hashlib import sha256

from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import migrate, migrations


class TestDatabases:
    """Makes databases of one server, and drops them."""

    __test__ = False

    def __init__(self, dsn: Callable[[str], str]) -> None:
        """`dsn` returns the address of a database by its name, for a role that may create databases."""
        self._dsn = dsn
        # By content: a server that outlives a test run may have the schema of another release.
        content = "".join(one.sha256 for one in migrations())
        self._template = f"watchword_testkit_{sha256(content.encode()).hexdigest()[:12]}"
        self._is_ready = False

    @contextlib.asynccontextmanager
    async def fresh(self) -> AsyncGenerator[str]:
        """Give the address of a new database with our schema and no rows; it is dropped afterwards.

        Raises:
            StoreUnavailable: the server is away.
        """
        await self._prepare()
        name = f"watchword_test_{secrets.token_hex(8)}"
        await self._run(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}"')
        try:
            yield self._dsn(name)
        finally:
            await self._run(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _prepare(self) -> None:
        if not self._is_ready:
            # What another run left half made is of no use.
            await self._run(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')
            await self._run(f'CREATE DATABASE "{self._template}" TEMPLATE template0')
            await migrate(self._dsn(self._template))
            self._is_ready = True

    async def _run(self, statement: str) -> None:
        database = Database(self._dsn("postgres"), application_name="watchword-testkit")
        connection = await database.connect()
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
