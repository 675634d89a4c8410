"""The kit's fixtures on the session's own server."""

import pytest

from watchword.handlers.testkit.databases import TestDatabases
from watchword.handlers.testkit.plugin import attestors, join_service
from watchword.streams.dev.postgres import EmbeddedPostgres

__all__ = ["attestors", "join_service"]


@pytest.fixture(scope="session")
def watchword_databases(postgres_server: EmbeddedPostgres) -> TestDatabases:
    """Make databases on the session's server."""
    return TestDatabases(postgres_server.dsn)
