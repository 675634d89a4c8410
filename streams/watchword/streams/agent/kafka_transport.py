"""Straight to Kafka: for machines inside a trusted network.

Needs WRITE on `join.requests`, READ on `join.responses` and `trust.bundle`, and no group. The topic
of answers is shared, so answers come sealed to a reply key. Answers to a CSR are on the one partition
of its key; the reader stands at that partition's end before the request is sent, so that no answer
can come too early. Every sending looks at the partitions again: if some were added meanwhile, answers
come elsewhere as soon as the worker has noticed too, and the service answers each copy of a request.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import structlog

from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.topics import (
    CRL_KEY,
    JOIN_REQUESTS,
    JOIN_RESPONSES,
    KEY_SET_KEY,
    TRUST_BUNDLE,
    TRUST_BUNDLE_KEY,
    crl_key,
)
from watchword.schemas.traceparent import TRACEPARENT
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import TransportRefused, TransportUnavailable
from watchword.streams.agent.tracing import traceparent
from watchword.streams.agent.transport import Conversation

_Client = Any
"""A producer or consumer of aiokafka, which has no types of its own."""

_log = structlog.get_logger(__name__)

_START_S = 15.0
_SEND_S = 15.0
_READ_S = 15.0
_STOP_S = 5.0
_MAX_RECORD_BYTES = MAX_REQUEST_BYTES + 4096
"""The topic's `max.message.bytes`: the request, its key, and the batch around them."""


class Connection(Protocol):
    """What `watchword.streams.kafka_clients.KafkaConnection` is to an agent."""

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of an aiokafka client."""
        ...


class KafkaTransport:
    """A client of the brokers."""

    answers_are_shared = True

    def __init__(self, connection: Connection, *, topic_prefix: str = "") -> None:
        """Name the brokers; nothing is opened yet. `topic_prefix` goes before each topic's name."""
        self.clock = AgentClock()
        self._connection = connection
        self._requests = topic_prefix + JOIN_REQUESTS
        self._responses = topic_prefix + JOIN_RESPONSES
        self._published = topic_prefix + TRUST_BUNDLE

    @asynccontextmanager
    async def conversation(self, csr_sha256: bytes) -> AsyncGenerator[Conversation]:
        """Open a producer and a reader for one CSR; see `Transport.conversation`."""
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: PLC0415 - 150 ms

        options = self._connection.client_options()
        consumer: _Client = AIOKafkaConsumer(
            **options,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            metadata_max_age_ms=30_000,
        )
        async with _started(consumer):
            # Not idempotent: a copy of a request is harmless, and a wedged producer is not.
            producer: _Client = AIOKafkaProducer(
                **options, acks="all", enable_idempotence=False, max_request_size=_MAX_RECORD_BYTES
            )
            async with _started(producer):
                yield _KafkaConversation(
                    producer,
                    consumer,
                    requests=self._requests,
                    responses=self._responses,
                    csr_sha256=csr_sha256,
                )

    async def key_set(self) -> bytes:
        """See `Transport.key_set`."""
        return self._published_under(KEY_SET_KEY, await self._documents())

    async def trust_bundle(self) -> bytes:
        """See `Transport.trust_bundle`."""
        return self._published_under(TRUST_BUNDLE_KEY, await self._documents())

    async def crl(self, ca: str | None = None) -> bytes | None:
        """See `Transport.crl`."""
        key = CRL_KEY if ca is None else crl_key(ca)
        return (await self._documents()).get(key) or None

    async def close(self) -> None:
        """Do nothing: clients live as long as what they are opened for."""

    def _published_under(self, key: bytes, documents: dict[bytes, bytes]) -> bytes:
        if not documents.get(key):
            message = f"{self._published}: no {key.decode()} is published yet"
            raise TransportUnavailable(message)
        return documents[key]

    async def _documents(self) -> dict[bytes, bytes]:
        """Return the last value of each key of the compacted topic; what was withdrawn is empty."""
        from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415 - as above
        from aiokafka.errors import IllegalStateError, KafkaError  # noqa: PLC0415 - the same

        consumer: _Client = AIOKafkaConsumer(
            **self._connection.client_options(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        partition = TopicPartition(self._published, 0)
        found: dict[bytes, bytes] = {}
        try:
            async with _started(consumer), asyncio.timeout(_READ_S):
                consumer.assign([partition])
                end = (await consumer.end_offsets([partition]))[partition]
                while await consumer.position(partition) < end:
                    key, value = await _next(consumer, partition)
                    if key is not None:
                        found[key] = value or b""
        except (KafkaError, IllegalStateError, OSError, TimeoutError) as error:
            raise _away(self._published, error) from None
        return found


class _KafkaConversation:
    def __init__(
        self,
        producer: _Client,
        consumer: _Client,
        *,
        requests: str,
        responses: str,
        csr_sha256: bytes,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._requests = requests
        self._responses = responses
        self._key = csr_sha256
        self._partition: tuple[str, int] | None = None

    async def publish(self, request: bytes) -> None:
        from aiokafka.errors import (  # noqa: PLC0415 - as above
            IllegalStateError,
            KafkaError,
            MessageSizeTooLargeError,
            TopicAuthorizationFailedError,
        )

        try:
            async with asyncio.timeout(_SEND_S):
                await self._stand_at_the_end()
                trace = traceparent()
                headers = [] if trace is None else [(TRACEPARENT, trace.encode())]
                await self._producer.send_and_wait(
                    self._requests, request, key=self._key, headers=headers
                )
        except (MessageSizeTooLargeError, TopicAuthorizationFailedError) as error:
            message = f"{self._requests}: {type(error).__name__}"
            raise TransportRefused(message) from None
        except (KafkaError, IllegalStateError, OSError, TimeoutError) as error:
            raise _away(self._requests, error) from None

    async def receive(self, request_sha256: bytes, wait_s: float) -> bytes | None:
        """Return the next record under our key; whose request it answers is inside."""
        from aiokafka.errors import IllegalStateError, KafkaError  # noqa: PLC0415 - as above

        del request_sha256
        if self._partition is None:
            message = "nothing has been sent yet"
            raise TransportUnavailable(message)
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    key, value = await _next(self._consumer, self._partition)
                    if key == self._key and value is not None:
                        return value
        except TimeoutError:
            return None
        except (KafkaError, IllegalStateError, OSError) as error:
            raise _away(self._responses, error) from None

    async def _stand_at_the_end(self) -> None:
        """Listen on the partition of our key, from now on, unless that is so already."""
        from aiokafka import TopicPartition  # noqa: PLC0415 - as above
        from aiokafka.partitioner import DefaultPartitioner  # noqa: PLC0415 - the same

        await self._producer.client.force_metadata_update()
        known: list[int] = sorted(await self._producer.partitions_for(self._responses))
        choose: Any = DefaultPartitioner()
        partition = TopicPartition(self._responses, choose(self._key, known, known))
        if partition == self._partition:
            return
        self._consumer.assign([partition])
        # A number, and not `seek_to_end`, which may be carried out after an answer has come.
        end = (await self._consumer.end_offsets([partition]))[partition]
        self._consumer.seek(partition, end)
        self._partition = partition


async def _next(consumer: _Client, partition: tuple[str, int]) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the next record.

    One that the client below cannot parse (a header name that is not UTF-8 is enough) is passed over:
    whoever may write to the topic must not be able to stop everybody who reads it.
    """
    from aiokafka.errors import IllegalStateError, KafkaError  # noqa: PLC0415 - as above

    while True:
        try:
            record = await consumer.getone(partition)
        except (KafkaError, IllegalStateError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the parser below raises
            at = await consumer.position(partition)
            _log.warning("record cannot be parsed", offset=at, error=type(error).__name__)
            consumer.seek(partition, at + 1)
        else:
            return record.key, record.value


@asynccontextmanager
async def _started(
    client: _Client,
) -> AsyncGenerator[None]:
    from aiokafka.errors import KafkaError  # noqa: PLC0415 - as above

    try:
        try:
            async with asyncio.timeout(_START_S):
                await client.start()
        except (KafkaError, OSError, TimeoutError) as error:
            raise _away(type(client).__name__, error) from None
        yield
    finally:
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await client.stop()


def _away(what: str, error: BaseException) -> TransportUnavailable:
    return TransportUnavailable(f"{what}: {type(error).__name__}")
