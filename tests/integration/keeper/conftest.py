"""A database, and keepers on it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.keepers import Options
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.windows import Limit
from watchword.streams.health import Health
from watchword.streams.keeper import KeeperOptions
from watchword.streams.lifecycle import Lifecycle


@pytest_asyncio.fixture
async def opened(database: str) -> AsyncGenerator[Database]:
    """Yield the database."""
    made = Database(database, application_name="test")
    yield made
    await made.close()


@pytest_asyncio.fixture
async def connection(opened: Database) -> AsyncGenerator[Connection]:
    """Yield a connection to write and look with."""
    made = await opened.connect()
    yield made
    await made.close()


@pytest.fixture
def options(database: str) -> Options:
    """Return a maker of options; the event to stop a keeper is not set."""

    def make(**changes: object) -> KeeperOptions:
        given: dict[str, Any] = {"name": "test", "lease_s": 2.0, "interval_s": 0.05} | changes
        return KeeperOptions(
            database=Database(database, application_name="keeper"),
            limit=Limit(60, 60),
            lifecycle=Lifecycle(health=Health(), stop=asyncio.Event()),
            **given,
        )

    return make
