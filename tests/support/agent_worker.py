"""A worker's half of Kafka for agents: answers each request as a test says, with real crypto."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from tests.support.agents import Machine, Reaction
from tests.support.kafka import KafkaTopics
from tests.support.record_batches import Batch, send_raw
from watchword.schemas.topics import (
    JOIN_REQUESTS,
    JOIN_RESPONSES,
    KEY_SET_KEY,
    TRUST_BUNDLE,
    TRUST_BUNDLE_KEY,
)


class Worker:
    """Reads requests and answers each as a test says, on the topic and under the key of a worker."""

    def __init__(self, machine: Machine, topics: KafkaTopics) -> None:
        """Name the topics."""
        self.machine = machine
        self.topics = topics
        self.seen: list[bytes] = []
        self.keys: list[bytes] = []
        self.reactions: list[Reaction] = []
        self.before: list[tuple[bytes, bytes | None]] = []
        """Keys and values of records that arrive just before each answer."""
        self.poisoned = False
        """Whether records that no client can parse arrive before those."""

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[AIOKafkaProducer]:
        """Publish the documents, and work until the block ends."""
        servers = self.topics.bootstrap_servers
        await self.topics.create(JOIN_REQUESTS, partitions=3)
        await self.topics.create(JOIN_RESPONSES, partitions=5)
        await self.topics.create(TRUST_BUNDLE, configs={"cleanup.policy": "compact"})
        producer = AIOKafkaProducer(bootstrap_servers=servers, metadata_max_age_ms=1000)
        consumer = AIOKafkaConsumer(
            self.topics.name(JOIN_REQUESTS),
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
        )
        await producer.start()
        await consumer.start()
        try:
            service = self.machine.service
            published = self.topics.name(TRUST_BUNDLE)
            for key, value in (
                (KEY_SET_KEY, b"an older one"),
                (TRUST_BUNDLE_KEY, service.trust_bundle()),
                (KEY_SET_KEY, service.key_set()),
            ):
                await producer.send_and_wait(published, value, key=key)
            task = asyncio.create_task(self._work(consumer, producer))
            yield producer
            task.cancel()
            await asyncio.wait([task])
        finally:
            await consumer.stop()
            await producer.stop()

    async def _work(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        topic = self.topics.name(JOIN_RESPONSES)
        async for record in consumer:
            self.seen.append(record.value)
            self.keys.append(record.key)
            if self.poisoned:
                partition = DefaultPartitioner()(record.key, list(range(5)), list(range(5)))
                batch = Batch([b"a", b"b", b"c"], named=[1]).renamed().raw
                servers = self.topics.bootstrap_servers
                await send_raw(servers, topic, batch, batch, partition=partition)
            for key, value in self.before:
                await producer.send_and_wait(topic, value, key=key)
            if self.reactions and (token := self.reactions.pop(0)(record.value)) is not None:
                await producer.send_and_wait(topic, token, key=record.key)
