"""The test kit's PostgreSQL: for authors of attestors, `pytest_plugins = ["watchword.streams.dev.testkit"]`.

It is the embedded one of the extra `dev`, for as long as the tests run; or the server that
`WATCHWORD_TESTKIT_DATABASE_URL` names, whose role has to be allowed to create databases.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest_asyncio

from watchword.handlers.testkit.databases import TestDatabases
from watchword.streams.dev.postgres import EmbeddedPostgres

pytest_plugins = ("watchword.handlers.testkit.plugin",)

VARIABLE = "WATCHWORD_TESTKIT_DATABASE_URL"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def watchword_databases() -> AsyncGenerator[TestDatabases]:
    """Give what makes databases, on a server for the whole session."""
    if url := os.environ.get(VARIABLE):
        yield TestDatabases(lambda name: _named(url, name))
        return
    folder = _folder()
    server = EmbeddedPostgres(folder, durable=False)
    try:
        await server.start()
        yield TestDatabases(server.dsn)
    finally:
        await server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    # PostgreSQL may have to run as another user, who must be able to pass.
    folder = Path(tempfile.mkdtemp(prefix="watchword-testkit-"))
    folder.chmod(0o711)
    return folder


def _named(url: str, database: str) -> str:
    """Return the address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
