"""Writes requests straight to Kafka, until each write is acknowledged."""

import asyncio
import random
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.faults.judge.topics import REQUESTS
from tests.faults.load.kinds import Send
from watchword.streams.kafka_clients import BATCH_BYTES
from watchword.streams.kafka_closing import close

_PATIENCE_S = 10.0
_REST_S = 0.3
_AT_ONCE = 500
"""Writes that a producer has at a time. With thousands it wakes all of them for every batch that leaves, so that no
write is in time, each takes the producer away from the others, and none is ever made again."""


class KafkaSender:
    """One producer, replaced after an error; the same bytes are then written again, as an agent would."""

    def __init__(self, bootstrap_servers: str, rng: random.Random) -> None:
        """Connect with the first write."""
        self._servers = bootstrap_servers
        self._rng = rng
        self._producer: Any = None
        self._starting: asyncio.Task[Any] | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.failures = 0
        """Writes of which nobody knows whether Kafka has them."""

    async def send(self, send: Send) -> tuple[int, int]:
        """Return partition and offset when the write is acknowledged; it may have been made twice."""
        return await self.write(
            send.value, send.key, partition=send.partition, elsewhere=send.elsewhere
        )

    async def write(
        self, value: bytes, key: bytes, *, partition: int | None = None, elsewhere: bool = False
    ) -> tuple[int, int]:
        """Do the same for bytes; `elsewhere` is any partition rather than the key's."""
        while True:
            producer = None
            try:
                async with self._places, asyncio.timeout(_PATIENCE_S):
                    producer = await self._opened()
                    if elsewhere:
                        numbers = sorted(await producer.partitions_for(REQUESTS))
                        partition = self._rng.choice(numbers)
                    sent = await producer.send_and_wait(
                        REQUESTS, value, key=key, partition=partition
                    )
                    return sent.partition, sent.offset
            except (KafkaError, OSError, TimeoutError):
                self.failures += 1
                await self._replace(producer)
                await asyncio.sleep(_REST_S)

    async def renew(self) -> None:
        """Take another producer, which knows all partitions that there are now."""
        await self._replace(self._producer)

    async def close(self) -> None:
        """Close the producer."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._replace(self._producer)

    async def _opened(self) -> Any:  # noqa: ANN401 - aiokafka has few types
        # All who wait wait for one start. With a lock they would wait for each other, and thousands never came through.
        if self._producer is not None:
            return self._producer
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Any:  # noqa: ANN401 - aiokafka has few types
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=5000,
            max_batch_size=BATCH_BYTES,
            metadata_max_age_ms=5000,
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await producer.start()
        except BaseException:
            await _stop(producer)
            raise
        self._producer = producer
        return producer

    async def _replace(self, producer: Any) -> None:  # noqa: ANN401 - aiokafka has few types
        if producer is not None and producer is self._producer:
            self._producer = None
            await _stop(producer)


async def _stop(producer: Any) -> None:  # noqa: ANN401 - aiokafka has few types
    """Close a producer; where that takes long, without what it still wanted to send."""
    await close(producer, patience_s=2)
    sender = producer._sender.sender_task
    if sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait({sender}, timeout=1)
