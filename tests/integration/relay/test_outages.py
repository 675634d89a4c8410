"""PostgreSQL or Kafka away."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from tests.support.journals import Reader, commit, committed_ids, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import relay_options, running
from tests.support.waiting import until
from watchword.handlers.journal import Entry
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.relay import Row
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.relay import metrics
from watchword.streams.relay.publisher import Publisher

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest_asyncio.fixture
async def own_broker(tmp_path: Path) -> AsyncGenerator[EmbeddedKafka]:
    """Yield a broker that this test may stop."""
    broker = EmbeddedKafka(tmp_path / "kafka")
    try:
        await broker.start()
        yield broker
    finally:
        await broker.remove()


async def test_kafka_may_go_and_come_back(
    database: str, journal: Database, connection: Connection, own_broker: EmbeddedKafka
) -> None:
    """What is committed while Kafka is away arrives when it is back, and nobody has to do anything."""
    topic = await KafkaTopics(own_broker.bootstrap_servers).create("node.events", partitions=3)
    options = replace(relay_options(database, own_broker.bootstrap_servers), pending_s=0.1)
    health = options.lifecycle.health
    async with running(options):
        await commit(journal, [event("node-1", 0, topic=topic)])
        await until(lambda: not health.problems(), "ready")
        await own_broker.stop()
        for number in range(1, 101):
            await commit(journal, [event("node-1", number, topic=topic)])
        await until(lambda: "kafka" in health.problems(), "readiness names Kafka", within_s=15)
        await until(lambda: metrics.PENDING._value.get() >= 100, "the backlog shows")
        assert metrics.OLDEST._value.get() > 0
        await own_broker.start()
        reader = Reader(own_broker.bootstrap_servers, [topic])
        await reader.start()
        await reader.read_until(await committed_ids(connection), within_s=30)
        await reader.stop()
        await until(lambda: not health.problems(), "ready again")

    assert reader.first_numbers("node-1") == list(range(101))


async def test_postgresql_may_go_and_come_back(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """A restart of PostgreSQL ends every connection; the relay makes another and says why it waits."""
    name = database.rpartition("/")[2]
    admin = await asyncpg.connect(f"{database.rpartition('/')[0]}/postgres")
    options = relay_options(database, kafka_topics.bootstrap_servers)
    health = options.lifecycle.health
    before, after = event("node-1", 1, topic=topic), event("node-1", 2, topic=topic)
    await commit(journal, [before])
    await journal.close()
    async with running(options):
        await reader.read_until({str(before.event_id)})
        await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        await until(lambda: "postgresql" in health.problems(), "readiness names PostgreSQL")
        await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        await commit(journal, [after])
        await reader.read_until({str(after.event_id)})
        await until(lambda: not health.problems(), "ready again")
    await admin.close()


async def test_a_stop_while_everything_is_away_is_quick(
    database: str, own_broker: EmbeddedKafka, journal: Database
) -> None:
    """The orchestrator kills what does not stop; a relay must not hang on what is away."""
    topic = await KafkaTopics(own_broker.bootstrap_servers).create("node.events")
    options = relay_options(database, own_broker.bootstrap_servers, lease_s=10)
    async with running(options):
        await commit(journal, [event("node-1", 0, topic=topic)])
        await until(lambda: not options.lifecycle.health.problems(), "ready")
        await own_broker.stop()
        await commit(journal, [event("node-1", 1, topic=topic)])
        await until(lambda: "kafka" in options.lifecycle.health.problems(), "noticed", within_s=15)
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 2.0


async def test_what_a_discarded_producer_holds_is_never_sent(
    topic: str, reader: Reader, kafka_topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wave that was given up and still goes out later would come after newer ones."""
    publisher = Publisher(KafkaConnection(kafka_topics.bootstrap_servers), request_s=2, missing={})
    held, sent = event("node-1", 1, topic=topic), event("node-1", 2, topic=topic)
    assert (await publisher.publish([_row(sent)], within_s=5)).acknowledged == {0}
    producer: AIOKafkaProducer = publisher._producer

    async def _stuck(*_: object) -> None:
        await asyncio.sleep(0.3)

    with monkeypatch.context() as patch:
        patch.setattr(producer._sender, "_send_produce_req", _stuck)
        outcome = await publisher.publish([_row(held)], within_s=0.2)
    assert outcome.acknowledged == set()
    assert outcome.failure is not None
    assert producer._sender.sender_task.done()
    last = event("node-1", 3, topic=topic)
    assert (await publisher.publish([_row(last)], within_s=5)).acknowledged == {0}
    await publisher.close()
    await reader.read_to_the_end()
    assert reader.first_numbers("node-1") == [2, 3]


def _row(entry: Entry) -> Row:
    return Row(
        entry.shard,
        1,
        entry.event_id,
        entry.topic or "",
        entry.key,
        entry.headers,
        entry.value,
        datetime.now(UTC),
    )
