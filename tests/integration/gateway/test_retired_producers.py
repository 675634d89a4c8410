"""A producer that is given up leaves nothing behind."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from tests.support.kafka import KafkaTopics
from watchword.streams.kafka_closing import close

_SILENCE_S = 0.4


@pytest.mark.kafka
async def test_a_producer_whose_broker_says_nothing_ends_with_its_sender(
    kafka_topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each outage would leave a task and what it carries, and an error in the log once the collector finds them."""
    topic = await kafka_topics.create("join.requests")
    producer = AIOKafkaProducer(bootstrap_servers=kafka_topics.bootstrap_servers)
    await producer.start()
    asked = asyncio.Event()

    async def cuts(*_: object, **__: object) -> Any:  # noqa: ANN401 - as aiokafka's
        asked.set()
        await asyncio.sleep(_SILENCE_S)
        raise KafkaConnectionError

    monkeypatch.setattr(producer.client, "send", cuts)
    sending = asyncio.ensure_future(producer.send_and_wait(topic, b"a request"))
    await asyncio.wait_for(asked.wait(), 10.0)

    await close(producer, patience_s=_SILENCE_S / 2)
    sender = producer._sender.sender_task
    await asyncio.wait((sender,), timeout=10.0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)

    assert sender.done()
