"""One PostgreSQL for all forks: a start and a migration for each change would cost more than its tests."""

import asyncio
import contextlib
from collections.abc import Generator

import pytest

from tests.support.folders import server_folder
from tests.support.postgres import Databases, template_cluster
from watchword.streams.dev.postgres import EmbeddedPostgres


class SharedDatabases:
    """A plugin of pytest that gives tests databases on a server that runs already."""

    def __init__(self, shared: Databases) -> None:
        """Take what makes databases there."""
        self._shared = shared

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Put the fixture in, after those of `tests/conftest.py`: the last of a name is the one that counts."""
        session.config.pluginmanager.register(_Fixtures(self._shared))


class _Fixtures:
    def __init__(self, shared: Databases) -> None:
        self._shared = shared

    @pytest.fixture(scope="session")
    def databases(self) -> Databases:
        return self._shared


@contextlib.contextmanager
def shared_databases() -> Generator[SharedDatabases]:
    """Run a server, with our schema in a template; it ends with this process."""
    with server_folder("postgres") as folder:
        server = EmbeddedPostgres(folder, durable=False, template=template_cluster())
        try:
            asyncio.run(server.start())
            databases = Databases(server)
            asyncio.run(_migrate(databases))
            yield SharedDatabases(databases)
        finally:
            asyncio.run(server.remove())


async def _migrate(databases: Databases) -> None:
    async with databases.migrated():
        pass
