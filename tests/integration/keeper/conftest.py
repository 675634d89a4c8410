"""A database, and keepers on it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio

from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.windows import Limit
from watchword.streams.health import Health
from watchword.streams.keeper import KeeperOptions
from watchword.streams.lifecycle import Lifecycle

Options = Callable[..., KeeperOptions]


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


async def told(connection: Connection) -> list[dict[str, Any]]:
    """Return the summaries in the journal, in order."""
    rows = await connection.fetch(
        "SELECT value FROM journal WHERE type = 'security.join.refused.window' ORDER BY seq"
    )
    return [json.loads(row["value"]) for row in rows]
