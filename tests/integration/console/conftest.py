"""A console in this process, on a database of its own, where two tenants have something that waits."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.doorman import Doorman
from tests.support.joins import Bench, join_bench
from tests.support.operators import Desks, desks


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    async with join_bench(database, attestors=[Doorman()]) as bench:
        await bench.place("acme", "web", "berlin")
        await bench.place("other", "web")
        yield bench


@pytest.fixture
async def console(database: str) -> AsyncGenerator[Desks]:
    async with desks(database) as console:
        yield console
