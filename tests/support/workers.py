"""Workers on a real Kafka, with a join service of the test's own."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, TopicPartition
from mode import Service

from tests.support.echo_service import EchoService
from tests.support.kafka import KafkaTopics
from tests.support.waiting import until
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_REQUESTS_DLQ, JOIN_RESPONSES
from watchword.streams.health import Health
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.worker.exits import ExitCode
from watchword.streams.worker.options import Judging, WorkerLimits, WorkerOptions, WorkerTopics
from watchword.streams.worker.run import assemble

Message = ConsumerRecord[bytes | None, bytes | None]


class EndedAtOnce(Exception):
    """Stands in for the end of the process."""


@dataclass
class Fleet:
    """The topics of a test, the workers of one group on them, and what they answered."""

    topics: KafkaTopics
    partitions: int
    limits: WorkerLimits = field(default_factory=lambda: WorkerLimits(commit_every_s=0.05))
    ended: list[ExitCode] = field(default_factory=list[ExitCode])
    """Processes that would have ended at once."""

    @property
    def names(self) -> WorkerTopics:
        """The topics' names."""
        return WorkerTopics.prefixed(self.topics.prefix)

    async def create(
        self,
        *,
        requests: Mapping[str, str] | None = None,
        responses: Mapping[str, str] | None = None,
    ) -> None:
        """Make the topics, with settings of their own."""
        await self.topics.create(JOIN_REQUESTS, partitions=self.partitions, configs=requests)
        await self.topics.create(JOIN_RESPONSES, partitions=2, configs=responses)
        await self.topics.create(JOIN_REQUESTS_DLQ)

    def options(self, name: str) -> WorkerOptions:
        """Return the options of a worker of this group."""
        return WorkerOptions(
            kafka=KafkaConnection(self.topics.bootstrap_servers),
            name=name,
            group=f"{self.topics.prefix}verifier",
            topics=self.names,
            limits=self.limits,
            health_port=0,
        )

    @contextlib.asynccontextmanager
    async def worker(
        self,
        service: EchoService,
        name: str = "w0",
        gate: Callable[[], str | None] = lambda: None,
    ) -> AsyncGenerator["Worker"]:
        """Run a worker in this process, and drain it at the end."""

        def fatal(code: ExitCode) -> NoReturn:
            self.ended.append(code)
            raise EndedAtOnce

        health = Health()
        judging = Judging(service, gate, lambda: 0.0)
        app = assemble(self.options(name), judging, health, fatal=fatal)
        await app.start()
        try:
            yield Worker(app, health)
        finally:
            await app.stop()

    async def committed(self) -> dict[int, int | None]:
        """Return the group's committed offsets by partition."""
        reader = AIOKafkaConsumer(
            bootstrap_servers=self.topics.bootstrap_servers,
            group_id=f"{self.topics.prefix}verifier",
            enable_auto_commit=False,
        )
        await reader.start()
        try:
            return {
                number: await reader.committed(TopicPartition(self.names.requests, number))
                for number in range(self.partitions)
            }
        finally:
            await reader.stop()

    async def read(self, topic: str) -> list[Message]:
        """Return everything that a topic holds now."""
        reader = AIOKafkaConsumer(
            topic, bootstrap_servers=self.topics.bootstrap_servers, auto_offset_reset="earliest"
        )
        await reader.start()
        try:
            ends = await reader.end_offsets(reader.assignment())
            found: list[Message] = []
            for partition, end in ends.items():
                while await reader.position(partition) < end:
                    records = await reader.getmany(partition, timeout_ms=1000)
                    found += records.get(partition, [])
            return found
        finally:
            await reader.stop()

    async def answers(self) -> list[bytes]:
        """Return the values on the topic of responses."""
        return [message.value or b"" for message in await self.read(self.names.responses)]

    @contextlib.asynccontextmanager
    async def producer(self) -> AsyncGenerator[AIOKafkaProducer]:
        """Open a producer of requests."""
        made = AIOKafkaProducer(
            bootstrap_servers=self.topics.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            max_request_size=2**21,
        )
        await made.start()
        try:
            yield made
        finally:
            await made.stop()

    async def send(self, *values: bytes, partition: int = 0) -> None:
        """Produce requests and await their acknowledgements."""
        async with self.producer() as producer:
            for value in values:
                await producer.send_and_wait(self.names.requests, value, partition=partition)


@dataclass(frozen=True)
class Worker:
    """A worker that runs."""

    app: Service
    health: Health

    async def is_ready(self, within_s: float = 30) -> None:
        """Wait until the worker is ready."""
        await until(lambda: not self.health.problems(), "the worker is ready", within_s=within_s)
