"""How requests of many machines go, and their answers come: one client for all of them."""

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.errors import SignatureBroken, Unavailable
from watchword.schemas.errors import SchemaError
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_RESPONSES
from watchword.streams.agent.errors import TransportUnavailable
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.kafka_clients import BATCH_BYTES, KafkaConnection

_POLL_S = 20.0
_REST_S = 0.5


class Carrier(Protocol):
    """Carries requests."""

    async def send(self, request: bytes) -> None:
        """Return when the request is in the log; tries until it is."""
        ...

    async def answer(self, request: bytes, within_s: float) -> bytes | None:
        """Return the signed answer to a request that was sent; None if none came in time."""
        ...

    async def key_set(self) -> bytes:
        """Return the published key set, which nobody has verified."""
        ...


async def _rest(error: TransportUnavailable) -> None:
    """Wait as long as whoever turned us away has asked for."""
    await asyncio.sleep(max(_REST_S, error.retry_after_s or 0.0))


class ByGateway:
    """Through a gateway."""

    def __init__(self, transport: HttpTransport) -> None:
        """Share the connections of one client."""
        self._transport = transport

    async def send(self, request: bytes) -> None:
        """See `Carrier.send`; what will not be taken is raised as `TransportRefused`."""
        async with self._transport.conversation(b"") as conversation:
            while True:
                try:
                    return await conversation.publish(request)
                except TransportUnavailable as error:
                    await _rest(error)

    async def answer(self, request: bytes, within_s: float) -> bytes | None:
        """See `Carrier.answer`."""
        digest, until = sha256(request).digest(), time.monotonic() + within_s
        async with self._transport.conversation(b"") as conversation:
            while (left_s := until - time.monotonic()) > 0:
                try:
                    found = await conversation.receive(digest, min(left_s, _POLL_S))
                except TransportUnavailable as error:
                    await _rest(error)
                    continue
                if found is not None:
                    return found
        return None

    async def key_set(self) -> bytes:
        """See `Carrier.key_set`."""
        return await self._transport.key_set()


class ByKafka:
    """Straight to Kafka: one producer, and one reader of all answers."""

    def __init__(self, kafka: KafkaConnection, key_set: bytes) -> None:
        """Connect to nothing yet."""
        self._kafka = kafka
        self._key_set = key_set
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._producer: Any = None
        self.problem: str | None = None
        """Why no answers are read any more."""

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Read answers inside the block.

        Raises:
            Unavailable: Kafka is away.
        """
        options = self._kafka.client_options()
        self._producer = AIOKafkaProducer(
            **options, acks="all", enable_idempotence=True, max_batch_size=BATCH_BYTES
        )
        reader: Any = AIOKafkaConsumer(
            **options, enable_auto_commit=False, auto_offset_reset="latest"
        )
        reading: asyncio.Task[None] | None = None
        try:
            try:
                await self._producer.start()
                await reader.start()
                numbers = await self._producer.partitions_for(JOIN_RESPONSES)
                reader.assign([TopicPartition(JOIN_RESPONSES, number) for number in numbers])
                await reader.seek_to_end()
            except KafkaError as error:
                message = f"Kafka: {type(error).__name__}"
                raise Unavailable(message) from error
            reading = asyncio.create_task(self._read(reader))
            yield
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
            await reader.stop()
            await self._producer.stop()

    async def send(self, request: bytes) -> None:
        """See `Carrier.send`."""
        digest = sha256(request).hexdigest()
        if digest not in self._waiting:
            self._waiting[digest] = asyncio.get_running_loop().create_future()
        key = sha256(b64decode(json.loads(request)["csr"])).digest()
        while True:
            try:
                await self._producer.send_and_wait(JOIN_REQUESTS, request, key=key)
            except KafkaError:
                await asyncio.sleep(_REST_S)
            else:
                return

    async def answer(self, request: bytes, within_s: float) -> bytes | None:
        """See `Carrier.answer`."""
        digest = sha256(request).hexdigest()
        try:
            return await asyncio.wait_for(asyncio.shield(self._waiting[digest]), within_s)
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(digest, None)

    async def key_set(self) -> bytes:
        """See `Carrier.key_set`."""
        return self._key_set

    async def _read(self, reader: Any) -> None:  # noqa: ANN401 - aiokafka's has no types of its own
        try:
            async for record in reader:
                # By the digest in clear; whose answer it is, the machine verifies.
                try:
                    said = json.loads(unverified_payload(record.value or b""))
                    waiting = self._waiting.get(said["requestSha256"])
                except (SignatureBroken, SchemaError, ValueError, KeyError, TypeError):
                    continue
                if waiting is not None and not waiting.done():
                    waiting.set_result(record.value)
        except KafkaError as error:
            self.problem = f"Kafka: {type(error).__name__}"
