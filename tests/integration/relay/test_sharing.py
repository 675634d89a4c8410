"""Several relays, and what becomes of one that is killed, paused or stopped."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.journals import Reader, commit, committed_ids, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import RelayProcess, until_shared
from watchword.handlers.store import relay as store
from watchword.handlers.store.connection import Connection, Database

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


class Relays:
    """Starts relay processes on one database, and kills what is left."""

    def __init__(self, dsn: str, servers: str, log: Path) -> None:
        """Start none yet."""
        self.log = log
        self._dsn = dsn
        self._servers = servers
        self._started: list[RelayProcess] = []

    async def start(self, name: str, failpoint: str = "", *, lease_s: float = 2.0) -> RelayProcess:
        relay = await RelayProcess.start(
            self._dsn, self._servers, name, lease_s=lease_s, failpoint=failpoint, log=self.log
        )
        self._started.append(relay)
        return relay

    async def remove(self) -> None:
        for relay in self._started:
            await relay.remove()


@pytest_asyncio.fixture
async def relays(
    database: str, kafka_topics: KafkaTopics, tmp_path: Path
) -> AsyncGenerator[Relays]:
    made = Relays(database, kafka_topics.bootstrap_servers, tmp_path / "relays.log")
    yield made
    await made.remove()


async def _write(journal: Database, topic: str, start: int, seconds: float) -> int:
    """Write the versions of ten keys for some seconds; return the next version."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await commit(journal, [event(f"node-{key}", start, topic=topic) for key in range(10)])
        start += 1
        await asyncio.sleep(0.01)
    return start


async def _assert_all_in_order(reader: Reader, connection: Connection) -> None:
    expected = await committed_ids(connection)
    await reader.read_until(expected)
    await reader.read_to_the_end()
    assert reader.ids() == expected
    for key in range(10):
        numbers = reader.first_numbers(f"node-{key}")
        assert numbers == list(range(len(numbers)))


async def test_relays_share_the_shards_and_hand_them_over(
    database: str, connection: Connection, relays: Relays
) -> None:
    """A relay that is stopped leaves no outage behind: its leases are released, not waited for."""
    first = await relays.start("first")
    await until_shared(database, {"first": 32})
    await relays.start("second")
    await until_shared(database, {"first": 16, "second": 16})
    stopped_at = time.monotonic()
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    assert time.monotonic() - stopped_at < 2.0
    await until_shared(database, {"second": 32}, within_s=1.5)
    assert (
        await connection.fetchval("SELECT count(*) FROM leases WHERE name LIKE 'relay:first%'") == 0
    )


async def test_two_relays_send_nothing_twice(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    relays: Relays,
) -> None:
    """Duplicates are for faults; two relays that both read a shard would make them all day."""
    await relays.start("first", lease_s=20.0)
    await relays.start("second", lease_s=20.0)
    await until_shared(database, {"first": 16, "second": 16})
    await _write(journal, topic, 0, 1.5)
    await _assert_all_in_order(reader, connection)
    assert len(reader.records) == len(reader.ids())


async def test_a_killed_relay_is_replaced_within_its_lease(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    relays: Relays,
) -> None:
    """Nobody has to notice, and nothing is lost."""
    first = await relays.start("first")
    await until_shared(database, {"first": 32})
    await relays.start("second")
    await until_shared(database, {"first": 16, "second": 16})
    version = await _write(journal, topic, 0, 0.5)
    first.send(signal.SIGKILL)
    killed_at = time.monotonic()
    await _write(journal, topic, version, 0.5)
    await until_shared(database, {"second": 32})
    assert time.monotonic() - killed_at < 3.5
    await _assert_all_in_order(reader, connection)


async def test_a_paused_relay_that_wakes_up_moves_nothing(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    relays: Relays,
) -> None:
    """A zombie believes in its lease; the epoch does not. What it sends are duplicates."""
    first = await relays.start("first")
    await until_shared(database, {"first": 32})
    await relays.start("second")
    await until_shared(database, {"first": 16, "second": 16})
    version = await _write(journal, topic, 0, 0.3)
    first.send(signal.SIGSTOP)
    version = await _write(journal, topic, version, 0.5)
    await until_shared(database, {"second": 32})
    version = await _write(journal, topic, version, 0.3)
    first.send(signal.SIGCONT)
    await _write(journal, topic, version, 0.5)
    await until_shared(database, {"first": 16, "second": 16})
    await _assert_all_in_order(reader, connection)


@pytest.mark.parametrize("failpoint", ["relay-before-send:3", "relay-after-send:3"])
async def test_a_crash_around_the_send_loses_nothing_and_repeats_the_same_ids(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    relays: Relays,
    failpoint: str,
) -> None:
    """Between acknowledgement and cursor there is no transaction; consumers deduplicate by `ce_id`."""
    doomed = await relays.start("doomed", failpoint)
    await until_shared(database, {"doomed": 32})
    version = await _write(journal, topic, 0, 0.5)
    assert await doomed.ended() == -signal.SIGKILL
    await relays.start("heir")
    await _write(journal, topic, version, 0.2)
    await _assert_all_in_order(reader, connection)
    repeated = len(reader.records) - len(reader.ids())
    assert (repeated > 0) == failpoint.startswith("relay-after-send")


async def test_a_cursor_moves_only_for_the_owner_of_its_epoch(
    journal: Database, connection: Connection
) -> None:
    """The fence itself: neither another owner, nor an older epoch, nor an expired lease moves it."""
    ours = await store.open_connection(journal)
    lease = await store.lease(ours, "ours", seconds=30, shards=32)
    moved = [
        store.Cursor(c.shard, c.epoch, "7:7:", c.floor, None, 0) for c in lease.held if c.shard < 3
    ]
    assert await store.move(ours, "other", moved) == set()
    older = [store.Cursor(c.shard, c.epoch - 1, "7:7:", c.floor) for c in moved]
    assert await store.move(ours, "ours", older) == set()
    await connection.execute(
        "UPDATE relay_cursors SET expires_at = clock_timestamp() WHERE shard = 0"
    )
    assert await store.move(ours, "ours", moved) == {1, 2}
    await ours.close()
