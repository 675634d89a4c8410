"""Topics for a gateway on a real Kafka."""

from collections.abc import AsyncGenerator

import pytest_asyncio

from tests.support.gateway import WorkerSide, worker_side
from tests.support.kafka import KafkaTopics


@pytest_asyncio.fixture
async def worker(kafka_topics: KafkaTopics) -> AsyncGenerator[WorkerSide]:
    """The three topics, and a worker's half of them."""
    async with worker_side(kafka_topics) as side:
        yield side
