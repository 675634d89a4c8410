"""Requests on their way to Kafka: acknowledged by all in-sync replicas, or not sent.

The producer is not idempotent on purpose. An idempotent aiokafka producer stays wedged on a
partition after one rejection, and what it would give is not needed: a copy of a request is
answered from the inbox, and requests have no order among them. It is replaced after an error or
a missed deadline all the same, because nobody knows what state that left it in.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Self

import structlog
from aiokafka.errors import KafkaError

from watchword.handlers.errors import Unavailable
from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.streams.gateway import metrics
from watchword.streams.gateway.admission import Admitted
from watchword.streams.gateway.kafka_ports import Producer, new_producer
from watchword.streams.gateway.quotas import Buckets
from watchword.streams.gateway.shedding import Window
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.kafka_closing import close

_log = structlog.get_logger(__name__)

_MAX_RECORD_BYTES = MAX_REQUEST_BYTES + 4096
"""The topic's `max.message.bytes`: the body, its key and headers, and the batch around them."""

_START_PATIENCE_S = 10.0
_BACKOFF_S = (0.2, 2.0)
_GOODBYE_S = 1.0
_LINES_PER_S = 10
"""Of requests that were not sent; what is beyond them is counted in the next line."""

Headers = tuple[tuple[str, bytes], ...]

Carry = Callable[[Admitted, Headers], Awaitable[None]]
"""Returns when Kafka has the request; raises `Unavailable`."""


class Place:
    """Room for one request on the way to Kafka.

    Whoever leaves the `with` block without a sending gives it back; a sending gives it back when it ends, whether
    or not somebody still waits for that: a client that is cut off is no sign that Kafka is slow.
    """

    def __init__(self, window: Window, begun: float, carry: Carry) -> None:
        """Take what `Window.begin` returned."""
        self._window = window
        self._begun = begun
        self._carry = carry
        self._is_sent = False

    def __enter__(self) -> Self:
        """Hold it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back if nothing is sent."""
        if not self._is_sent:
            self._window.end(self._begun, acknowledged=None)

    def send(self, admitted: Admitted, headers: Headers = ()) -> Coroutine[None, None, None]:
        """Return the sending, to be awaited once: it returns when Kafka has the request.

        Raises:
            Unavailable: Kafka is away or too slow. Whether it has the request is then unknown; sending the
                same bytes again is harmless.
        """
        self._is_sent = True
        return self._send(admitted, headers)

    async def _send(self, admitted: Admitted, headers: Headers) -> None:
        acknowledged = False
        try:
            await self._carry(admitted, headers)
            acknowledged = True
        finally:
            self._window.end(self._begun, acknowledged=acknowledged)
            metrics.WINDOW.set(self._window.limit)


class Requests:
    """Sends admitted requests to one topic."""

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        *,
        deadline_s: float,
        in_flight: int,
    ) -> None:
        """Open nothing yet: `run` keeps a producer."""
        self.topic = topic
        self._connection = connection
        self._deadline_s = deadline_s
        self._window = Window(in_flight, deadline_s=deadline_s)
        self._producer: Producer | None = None
        self._has_producer = asyncio.Event()
        self._is_broken = asyncio.Event()
        self._problem: str | None = "not connected yet"
        self._closing: set[asyncio.Task[None]] = set()
        self._lines = Buckets(_LINES_PER_S, 1.0, capacity=1)
        self._unlogged = 0

    def problem(self) -> str | None:
        """Return why nothing can be sent, or None; for the readiness."""
        return self._problem

    async def run(self) -> None:
        """Keep a working producer until cancelled; let nothing be on its way then."""
        try:
            while True:
                self._is_broken.clear()
                producer = await self._open()
                if producer is None:
                    await asyncio.sleep(random.uniform(*_BACKOFF_S))  # noqa: S311 - jitter
                    continue
                self._producer = producer
                self._say(None)
                self._has_producer.set()
                await self._is_broken.wait()
        finally:
            if self._producer is not None:
                await close(self._producer, patience_s=_GOODBYE_S)
            for task in self._closing:
                task.cancel()

    def place(self) -> Place | None:
        """Return room for one request on the way; None if there is none."""
        begun = self._window.begin()
        if begun is None:
            metrics.SENT.labels("too-many").inc()
            return None
        return Place(self._window, begun, self._send)

    async def _send(self, admitted: Admitted, headers: Headers) -> None:
        producer: Producer | None = None
        try:
            with metrics.SEND_SECONDS.time():
                async with asyncio.timeout(self._deadline_s):
                    producer = await self._current()
                    await producer.send_and_wait(
                        self.topic, admitted.body, key=admitted.csr_sha256, headers=list(headers)
                    )
        except (KafkaError, OSError, TimeoutError) as error:
            metrics.SENT.labels("failed").inc()
            if self._lines.take(""):
                self._unlogged += 1
            else:
                _log.warning(
                    "request not sent",
                    error=type(error).__name__,
                    request_id=admitted.request_id,
                    unlogged_before=self._unlogged,
                )
                self._unlogged = 0
            if producer is not None:
                self._retire(producer)
            raise Unavailable from error
        metrics.SENT.labels("acknowledged").inc()

    async def _current(self) -> Producer:
        """Return the producer; wait for the next one only if Kafka is not known to be away."""
        while self._producer is None:
            if self._problem is not None:
                raise KafkaError(self._problem)
            await self._has_producer.wait()
        return self._producer

    async def _open(self) -> Producer | None:
        producer = new_producer(
            self._connection, deadline_s=self._deadline_s, max_record_bytes=_MAX_RECORD_BYTES
        )
        try:
            async with asyncio.timeout(_START_PATIENCE_S):
                await producer.start()
                await producer.partitions_for(self.topic)
        except (KafkaError, OSError, TimeoutError) as error:
            self._say(type(error).__name__)
            await close(producer, patience_s=self._deadline_s)
            return None
        except BaseException:
            await close(producer, patience_s=self._deadline_s)
            raise
        return producer

    def _retire(self, producer: Producer) -> None:
        """Use it no more; what it still carries may arrive, or fails by its own deadline."""
        if producer is not self._producer:
            return
        self._producer = None
        self._has_producer.clear()
        self._is_broken.set()
        # What it carries expires by its own deadline, the same as ours.
        task = asyncio.create_task(close(producer, patience_s=self._deadline_s + 1.0))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _say(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            if problem is None:
                _log.info("requests can be sent", topic=self.topic)
            else:
                _log.warning("requests cannot be sent", topic=self.topic, problem=problem)
