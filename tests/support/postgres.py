"""A PostgreSQL server for the test session, and a fresh database for each test."""

import contextlib
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.support.folders import CACHE, server_folder
from watchword.streams.dev.postgres import EmbeddedPostgres
from watchword.streams.dev.postgres_files import postgres_version

_TEMPLATE = "watchword_template"


def template_cluster() -> Path:
    """Return where an empty cluster is kept over test sessions, so that `initdb` runs once."""
    return CACHE / f"postgres-{postgres_version()}"


class Databases:
    """Makes databases on one server: empty ones, and copies of one that was migrated."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        """Make nothing yet."""
        self._server = server
        self._is_migrated = False

    @contextlib.asynccontextmanager
    async def empty(self) -> AsyncGenerator[str]:
        """Yield the address of a database without our schema; drop it afterwards."""
        async with self._copy_of("template0") as dsn:
            yield dsn

    @contextlib.asynccontextmanager
    async def migrated(self) -> AsyncGenerator[str]:
        """Yield the address of a database with our schema and no rows; drop it afterwards."""
        if not self._is_migrated:
            # Late: the tests of the launchers must run when the store does not.
            from watchword.handlers.store.migrate import migrate  # noqa: PLC0415

            # What an earlier, failed migration left is of no use.
            await self._run(f'DROP DATABASE IF EXISTS "{_TEMPLATE}" WITH (FORCE)')
            await self._run(f'CREATE DATABASE "{_TEMPLATE}" TEMPLATE template0')
            await migrate(self._server.dsn(_TEMPLATE))
            self._is_migrated = True
        async with self._copy_of(_TEMPLATE) as dsn:
            yield dsn

    @contextlib.asynccontextmanager
    async def _copy_of(self, template: str) -> AsyncGenerator[str]:
        name = f"test_{secrets.token_hex(8)}"
        # Quicker than through the log, which matters where nothing has to last.
        await self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        try:
            yield self._server.dsn(name)
        finally:
            await self._run(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server.dsn())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_server() -> AsyncGenerator[EmbeddedPostgres]:
    """The session's PostgreSQL, started by the first test that asks. It is not durable."""
    with server_folder("postgres") as folder:
        server = EmbeddedPostgres(folder, durable=False, template=template_cluster())
        try:
            await server.start()
            yield server
        finally:
            await server.remove()


@pytest.fixture(scope="session")
def databases(postgres_server: EmbeddedPostgres) -> Databases:
    """Make further databases, for tests that need more than one."""
    return Databases(postgres_server)


@pytest_asyncio.fixture
async def database(databases: Databases) -> AsyncGenerator[str]:
    """Yield the address of a fresh database with our schema."""
    async with databases.migrated() as dsn:
        yield dsn


@pytest_asyncio.fixture
async def empty_database(databases: Databases) -> AsyncGenerator[str]:
    """Yield the address of a fresh database without our schema."""
    async with databases.empty() as dsn:
        yield dsn
