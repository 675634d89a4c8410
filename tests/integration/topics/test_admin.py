"""Topics, planned and applied on a real broker."""

import pytest

from tests.support.kafka import KafkaTopics
from watchword.handlers.errors import Unavailable
from watchword.schemas.topics import Topic
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.topics.admin import administering, apply, differences
from watchword.streams.topics.plan import Wish

pytestmark = pytest.mark.kafka

WISH = Wish(replication_factor=1, min_insync_replicas=1, partitions={})


@pytest.fixture
def kafka(kafka_topics: KafkaTopics) -> KafkaConnection:
    return KafkaConnection(kafka_topics.bootstrap_servers)


async def test_what_was_applied_differs_no_more(
    kafka: KafkaConnection, kafka_topics: KafkaTopics
) -> None:
    """A deployment applies its topics at each release."""
    topics = [Topic(kafka_topics.name("a"), 3, "", "", {"retention.ms": "3600000"})]

    assert [step.action for step in await apply(kafka, WISH, topics)] == ["create"]
    assert await differences(kafka, WISH, topics) == []


async def test_partitions_grow_and_an_operators_own_config_survives(
    kafka: KafkaConnection, kafka_topics: KafkaTopics
) -> None:
    """Setting one config must not set back all others, as Kafka's own call does."""
    name = await kafka_topics.create(
        "b", partitions=1, configs={"retention.ms": "1000", "segment.ms": "60000"}
    )
    topics = [Topic(name, 2, "", "", {"retention.ms": "3600000"})]

    steps = await apply(kafka, WISH, topics)

    assert {step.action for step in steps} >= {"add-partitions", "set"}
    assert await differences(kafka, WISH, topics) == []
    async with administering(kafka) as admin:
        found = (await admin.found(topics))[name]
    assert found.partitions == 2
    assert found.own["segment.ms"] == "60000"
    assert found.own["retention.ms"] == "3600000"


async def test_a_broker_that_is_away_is_unavailable() -> None:
    """Exit 69, and not a traceback of a library."""
    with pytest.raises(Unavailable, match="Kafka"):
        await differences(KafkaConnection("127.0.0.1:1"), WISH)
