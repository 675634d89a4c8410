"""A journal, a topic and a reader of it."""

from collections.abc import AsyncGenerator

import pytest_asyncio

from tests.support.journals import Reader
from tests.support.kafka import KafkaTopics
from watchword.handlers.store.connection import Connection, Database


@pytest_asyncio.fixture
async def journal(database: str) -> AsyncGenerator[Database]:
    """Yield the database to write to."""
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def connection(journal: Database) -> AsyncGenerator[Connection]:
    """Yield a connection to look with."""
    opened = await journal.connect()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def topic(kafka_topics: KafkaTopics) -> str:
    """Make a topic of three partitions."""
    return await kafka_topics.create("node.events", partitions=3)


@pytest_asyncio.fixture
async def reader(kafka_topics: KafkaTopics, topic: str) -> AsyncGenerator[Reader]:
    """Yield a reader of that topic."""
    opened = Reader(kafka_topics.bootstrap_servers, [topic])
    await opened.start()
    yield opened
    await opened.stop()
