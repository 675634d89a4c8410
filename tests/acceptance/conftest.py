"""What the tests of a whole deployment share: its database."""

from collections.abc import AsyncGenerator

import pytest_asyncio

from tests.support.postgres import Databases


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(databases: Databases) -> AsyncGenerator[str]:
    """Give one database to all tests of a module, as there is one deployment."""
    async with databases.migrated() as dsn:
        yield dsn
