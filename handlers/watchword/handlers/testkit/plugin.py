"""Fixtures for pytest. `watchword.streams.dev.testkit` adds the server; its `pytest_plugins` name this module."""

from collections.abc import AsyncGenerator, Sequence

import pytest
import pytest_asyncio

from watchword.handlers.attestor import Attestor
from watchword.handlers.testkit.conformance import AttestorConformance
from watchword.handlers.testkit.databases import TestDatabases
from watchword.handlers.testkit.service import ServiceUnderTest, service_on


@pytest.fixture
def attestors() -> Sequence[Attestor]:
    """Override: the attestors of `join_service`, besides `join-token`. A conformance suite brings its own."""
    return ()


@pytest_asyncio.fixture
async def join_service(
    request: pytest.FixtureRequest,
    attestors: Sequence[Attestor],
    watchword_databases: TestDatabases,
) -> AsyncGenerator[ServiceUnderTest]:
    """Give the real join service, on a database that nobody else uses and with a clock that can be set forward."""
    wanted = list(attestors)
    suite: object = request.instance
    if isinstance(suite, AttestorConformance):
        own = suite.attestor()
        if all(one.id != own.id for one in wanted):
            wanted.append(own)
    async with watchword_databases.fresh() as dsn, service_on(dsn, wanted) as service:
        yield service
