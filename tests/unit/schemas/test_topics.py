"""What topics are made with."""

import pytest

from watchword.schemas.topics import TOPICS, Topic


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_broker_stamps_the_records_of(topic: Topic) -> None:
    """Kafka refuses records from over an hour ahead: a worker with that clock could not answer."""
    assert topic.configs["message.timestamp.type"] == "LogAppendTime"
