"""From the journal to Kafka."""

import time
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.journals import Reader, commit, committed_ids, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import relay_options, running
from watchword.handlers.store.connection import Database

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest_asyncio.fixture
async def journal(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def topic(kafka_topics: KafkaTopics) -> str:
    return await kafka_topics.create("node.events", partitions=3)


@pytest_asyncio.fixture
async def reader(kafka_topics: KafkaTopics, topic: str) -> AsyncGenerator[Reader]:
    opened = Reader(kafka_topics.bootstrap_servers, [topic])
    await opened.start()
    yield opened
    await opened.stop()


async def test_what_is_committed_is_published(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    entries = [event(f"node-{n % 7}", n, topic=topic) for n in range(100)]
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await commit(journal, entries)
        await reader.read_until({str(e.event_id) for e in entries})
