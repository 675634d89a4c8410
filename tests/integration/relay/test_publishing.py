"""From the journal to Kafka, by one relay."""

import asyncio
import random
import time
from typing import NoReturn

import pytest

from tests.support.journals import Reader, commit, committed_ids, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import relay_options, running
from tests.support.waiting import until_true
from watchword.handlers.store import journal as journal_store
from watchword.handlers.store.connection import Connection, Database
from watchword.streams.relay.relay import Relay

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


class _Undone(Exception):
    """A writer changes its mind."""


def _undo() -> NoReturn:
    raise _Undone


async def _write(database: Database, topic: str, seed: int, until: float) -> None:
    """Change keys under their locks as workers do: some with an early xid, some slow, some in vain."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    connection = await database.connect()
    while time.monotonic() < until:
        try:
            async with connection.transaction():
                if chance.random() < 0.5:
                    await connection.execute("SELECT pg_current_xact_id()")
                key = f"node-{chance.randrange(20)}"
                version = await connection.fetchval(
                    "UPDATE versions SET version = version + 1 WHERE key = $1 RETURNING version",
                    key,
                )
                await journal_store.append(connection, [event(key, version, topic=topic)])
                if seed % 3 == 0:
                    await connection.execute("SELECT pg_sleep($1)", chance.choice((0, 0.05, 0.3)))
                if chance.random() < 0.15:
                    _undo()
        except _Undone:
            pass
    await connection.close()


async def test_nothing_is_lost_and_no_key_turned_round(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    kafka_topics: KafkaTopics,
) -> None:
    """A cursor on `seq` alone loses what commits late; one that waits for the oldest turns keys round."""
    await connection.execute(
        "CREATE TABLE versions (key text PRIMARY KEY, version int NOT NULL);"
        "INSERT INTO versions SELECT 'node-' || n, 0 FROM generate_series(0, 19) AS n"
    )
    late = event("late", 1, topic=topic)
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        async with asyncio.TaskGroup() as writers:
            long = await journal.connect()
            transaction = long.transaction()
            await transaction.start()
            await long.execute("SET idle_in_transaction_session_timeout = 0")
            await journal_store.append(long, [late])
            for seed in range(8):
                writers.create_task(_write(journal, topic, seed, time.monotonic() + 3))
        published_meanwhile = await committed_ids(connection)
        await reader.read_until(published_meanwhile)
        assert str(late.event_id) not in reader.ids()
        await transaction.commit()
        await long.close()
        expected = await committed_ids(connection)
        await reader.read_until(expected)
        await reader.read_to_the_end()

    assert len(expected) > 100
    assert reader.ids() == expected
    for key in range(20):
        numbers = reader.first_numbers(f"node-{key}")
        assert numbers == list(range(1, len(numbers) + 1))


async def test_many_events_of_one_key_keep_their_order_over_cut_waves(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    kafka_topics: KafkaTopics,
) -> None:
    """A batch larger than a wave is where a relay could forget its place; a stored end must be closed."""
    entries = [event("node-1", n, topic=topic) for n in range(100)]
    await commit(journal, entries)
    async with running(relay_options(database, kafka_topics.bootstrap_servers, wave_rows=7)):
        await reader.read_until({str(e.event_id) for e in entries})

        async def closed() -> bool:
            return not await connection.fetchval("SELECT count(to_snapshot) FROM relay_cursors")

        await until_true(closed, "every batch is closed")

    assert reader.first_numbers("node-1") == list(range(100))
    assert len(reader.records) == 100


async def test_what_has_no_topic_stays_in_the_journal(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """Operators' acts are kept for the rebuild; nobody outside is told."""
    told = event("node-1", 1, topic=topic)
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await commit(journal, [event("token", 1, topic=None), told])
        await reader.read_until({str(told.event_id)})
        await reader.read_to_the_end()

    assert reader.ids() == {str(told.event_id)}


async def test_a_record_bears_the_time_of_publishing(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """Else an outage longer than the topic's retention has Kafka delete records on arrival."""
    waited = event("node-1", 1, topic=topic)
    await commit(journal, [waited])
    await asyncio.sleep(0.2)
    started = time.time()
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await reader.read_until({str(waited.event_id)})

    assert reader.records[0].timestamp_ms >= int(started * 1000)


async def test_an_idle_relay_writes_nothing(
    database: str, connection: Connection, kafka_topics: KafkaTopics
) -> None:
    """Forty looks a second that wrote would wear out the cursor rows."""
    relay = Relay(relay_options(database, kafka_topics.bootstrap_servers, lease_s=60))
    await relay.step()
    before = await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    for _ in range(20):
        await relay.step()
    after = await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    await relay.close(is_idle=True)

    assert len(before) > 0
    assert after == before


async def test_a_long_transaction_does_not_make_cursors_lose_rows_behind_them(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """The bounds that spare reading old rows must not pass a transaction that still runs."""
    slow = await journal.connect()
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute("SET idle_in_transaction_session_timeout = 0")
    late = event("late", 1, topic=topic)
    await journal_store.append(slow, [late])
    options = relay_options(database, kafka_topics.bootstrap_servers, lease_s=0.6)
    async with running(options):
        for n in range(5):  # several leases, so that the bounds have had time to move
            entries = [event("node-1", n, topic=topic)]
            await commit(journal, entries)
            await reader.read_until({str(e.event_id) for e in entries})
            await asyncio.sleep(0.2)
    await transaction.commit()
    await slow.close()
    async with running(relay_options(database, kafka_topics.bootstrap_servers, name="heir")):
        await reader.read_until({str(late.event_id)})
