"""A Kafka broker for the test session, and topics of its own for each test."""

import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.folders import server_folder
from watchword.streams.dev.kafka import EmbeddedKafka


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """Makes topics that no other test knows."""

    bootstrap_servers: str
    prefix: str = field(default_factory=lambda: f"test-{secrets.token_hex(4)}.")

    def name(self, topic: str) -> str:
        """Return the name of a topic of this test: `join.requests` gets this test's prefix."""
        return f"{self.prefix}{topic}"

    async def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, and return its full name."""
        name = self.name(topic)
        new = NewTopic(name, partitions, replicas, topic_configs=dict(configs or {}))
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            answer = await admin.create_topics([new])
        finally:
            await admin.close()
        failures = [error for error in answer.to_object()["topic_errors"] if error["error_code"]]
        assert not failures
        return name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka_broker() -> AsyncGenerator[EmbeddedKafka]:
    """The session's Kafka, started by the first test that asks."""
    with server_folder("kafka") as folder:
        broker = EmbeddedKafka(folder / "data")
        try:
            await broker.start()
            yield broker
        finally:
            await broker.remove()


@pytest.fixture
def kafka_topics(kafka_broker: EmbeddedKafka) -> KafkaTopics:
    """Make topics whose names begin with a prefix of this test's own."""
    return KafkaTopics(kafka_broker.bootstrap_servers)
