"""PostgreSQL stands still when somebody hangs up: it answers no good-bye, and its connections do not end."""

import asyncio
import os
import signal
from collections.abc import Callable, Generator

import asyncpg
import pytest

from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import Learned, SlotLimits, Slots

pytestmark = pytest.mark.postgres

_DEADLINE_SECONDS = 20

StandStill = Callable[[int], None]


@pytest.fixture
def server(database: str) -> Database:
    """Give the database with our time limits."""
    return Database(database, application_name="hanging-up")


@pytest.fixture
def stand_still() -> Generator[StandStill]:
    """Give what has a backend of the server stand still until the test is over."""
    stopped: list[int] = []

    def stop(backend: int) -> None:
        os.kill(backend, signal.SIGSTOP)
        stopped.append(backend)

    yield stop
    for backend in stopped:
        os.kill(backend, signal.SIGCONT)


async def test_process_that_is_told_to_stop_does(server: Database, stand_still: StandStill) -> None:
    """Else a keeper or console goes on for as long as its database stands still, and is killed in the end."""
    async with server.transaction() as connection:
        backend = connection.get_server_pid()
    stand_still(backend)

    async with asyncio.timeout(_DEADLINE_SECONDS):
        await server.close()


async def test_worker_that_is_told_to_stop_does(server: Database, stand_still: StandStill) -> None:
    """Its sessions wait for the next batch, and nobody is on the other side any more."""
    store = PostgresJoinStore(server, SlotLimits())
    session = await store.session()
    await store.release(session, broken=False)
    stand_still(session.connection.get_server_pid())

    async with asyncio.timeout(_DEADLINE_SECONDS):
        await store.close()


async def test_batch_does_not_wait_for_the_good_bye_of_a_connection_beside_its_own(
    database: str, server: Database, stand_still: StandStill
) -> None:
    """The slots are there; a batch that waits on holds its locks, and its requests, for as long as nobody answers."""

    class Left(asyncpg.Connection):
        """Its server stands still as it is hung up."""

        async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's own
            stand_still(self.get_server_pid())
            await super().close(timeout=timeout)

    async def connect() -> Connection:
        return await asyncpg.connect(
            database, server_settings={"search_path": "watchword"}, connection_class=Left
        )

    own = await server.connect()
    # What is looked at is that it ends at all, on a machine however slow.
    await own.execute("SET idle_in_transaction_session_timeout = 0")
    slots = Slots(SlotLimits(), connect)
    bucket = ("acme", "tpm", "bad-quote")
    async with asyncio.timeout(_DEADLINE_SECONDS), own.transaction():
        assert await slots.claim(own, {bucket: 1}, Learned()) == {bucket: 1}
    await own.close()
