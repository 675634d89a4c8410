"""Sends answers and dead letters until Kafka has acknowledged each of them."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from mode import Service

from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.streams.kafka_clients import BATCH_BYTES
from watchword.streams.partitions import default_partition
from watchword.streams.worker import metrics
from watchword.streams.worker.options import WorkerOptions
from watchword.streams.worker.outgoing import Outgoing
from watchword.streams.worker.services import WorkerService

_log = structlog.get_logger(__name__)

_REQUEST_BYTES = MAX_REQUEST_BYTES * 8
"""The client's own limit; the topics' are what counts."""
_REQUEST_TIMEOUT_MS = 5000
_FIRST_BACKOFF_S = 0.1
_GREATEST_BACKOFF_S = 2.0
_CLOSE_S = 2.0


class Producer(Protocol):
    """What is called of aiokafka's producer."""

    async def start(self) -> None: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102
    async def send(  # noqa: D102
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        *,
        headers: list[tuple[str, bytes | None]],
    ) -> "asyncio.Future[object]": ...


ProducerFactory = Callable[[], Producer]


def producer_factory(options: WorkerOptions) -> ProducerFactory:
    """Return what makes an idempotent producer that waits for all in-sync replicas."""

    def make() -> Producer:
        made = AIOKafkaProducer(
            **options.kafka.client_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            max_request_size=_REQUEST_BYTES,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            partitioner=cast("Any", default_partition),
            metadata_max_age_ms=int(options.limits.metadata_age_s * 1000),
        )
        return cast("Producer", made)

    return make


class Answers(WorkerService):
    """One producer for all batches, replaced whenever anything goes wrong with it.

    An idempotent aiokafka producer stays wedged on a partition after one rejection, and one whose
    broker is away never gives up; another object has neither past. Records may so be sent twice,
    and overtake each other: an answer stands for itself, an agent compares digests.
    """

    def __init__(self, make_producer: ProducerFactory, deadline_s: float) -> None:
        """Connect to nothing yet.

        Args:
            make_producer: Makes a producer that is not started.
            deadline_s: When the records that were handed to a producer must be acknowledged.
        """
        super().__init__()
        self._make_producer = make_producer
        self._deadline_s = deadline_s
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._trouble: str | None = "not connected yet"
        self._missing = asyncio.Event()
        self._missing.set()

    def problem(self) -> str | None:
        """Return why answers cannot be sent now, for the health listener."""
        return self._trouble

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Return when each record is acknowledged, or has been given up because it is too large.

        Never raises but for cancellation; waits as long as it takes.
        """
        waves = [list(records)] if records else []
        failures = 0
        while waves:
            left, refused = await self._wave(waves[0])
            if not left and not refused:
                waves.pop(0)
                failures = 0
                continue
            # A batch is refused as a whole, so each of its records gets another try by itself.
            is_alone = len(waves[0]) == 1
            apart = _smaller(refused) if is_alone else [[record] for record in refused]
            waves[:1] = ([left] if left else []) + apart
            if left:
                await _back_off(failures)
                failures += 1

    async def on_stop(self) -> None:
        """Close the producer."""
        if (producer := self._producer) is not None:
            self._producer = None
            self._close_aside(producer)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)

    @Service.task
    async def _connect(self) -> None:
        """Connect before there is an answer to send, so that readiness means something."""
        failures = 0
        while not self.should_stop:
            await self._missing.wait()
            try:
                await self._connected()
                failures = 0
            except (KafkaError, OSError, TimeoutError):
                await _back_off(failures)
                failures += 1

    async def _wave(self, wave: list[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
        """Send records; return those that have to be sent again, and those refused for their size."""
        producer: Producer | None = None
        outcomes: list[BaseException | None] = [_NotSent()] * len(wave)
        try:
            async with asyncio.timeout(self._deadline_s):
                producer = await self._connected()
                await _send_all(producer, wave, outcomes)
        except (KafkaError, OSError, TimeoutError) as error:
            outcomes = [error if isinstance(o, _NotSent) else o for o in outcomes]
        left: list[Outgoing] = []
        refused: list[Outgoing] = []
        sent: Counter[str] = Counter()
        for record, outcome in zip(wave, outcomes, strict=True):
            if outcome is None:
                sent[record.kind.value] += 1
            elif isinstance(outcome, MessageSizeTooLargeError):
                refused.append(record)
            else:
                left.append(record)
        for kind, count in sent.items():
            metrics.SENT.labels(kind).inc(count)
        if failure := next((outcome for outcome in outcomes if outcome is not None), None):
            self._replace(producer, failure)
        return left, refused

    async def _connected(self) -> Producer:
        async with self._starting:
            if self._producer is None:
                producer = self._make_producer()
                try:
                    async with asyncio.timeout(self._deadline_s):
                        await producer.start()
                except BaseException as error:
                    self._trouble = f"Kafka: {type(error).__name__}"
                    self._close_aside(producer)
                    raise
                self._producer, self._trouble = producer, None
                self._missing.clear()
            return self._producer

    def _replace(self, producer: Producer | None, error: BaseException) -> None:
        _log.warning("producer replaced", error=type(error).__name__, detail=str(error))
        metrics.PRODUCERS_REPLACED.inc()
        # Another batch may have replaced it already.
        if producer is not None and producer is self._producer:
            self._producer = None
            self._missing.set()
            self._trouble = f"Kafka: {type(error).__name__}"
            self._close_aside(producer)

    def _close_aside(self, producer: Producer) -> None:
        closing = asyncio.create_task(_close(producer))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _NotSent(Exception):
    """Nothing is known of the record yet."""


async def _send_all(
    producer: Producer, wave: list[Outgoing], outcomes: list[BaseException | None]
) -> None:
    """Hand all records over, then await all acknowledgements; fill in what came of each."""
    sent: dict[int, asyncio.Future[object]] = {}
    try:
        for index, record in enumerate(wave):
            try:
                sent[index] = await producer.send(
                    record.topic, record.value, record.key, headers=list(record.headers)
                )
            except MessageSizeTooLargeError as error:
                outcomes[index] = error
        if sent:
            await asyncio.wait(sent.values())
    finally:
        for index, future in sent.items():
            if not future.done():
                # Of a producer that is given up: its end is nobody's concern.
                future.add_done_callback(_forget)
            elif not future.cancelled():
                outcomes[index] = future.exception()


def _forget(future: "asyncio.Future[object]") -> None:
    if not future.cancelled():
        future.exception()


def _smaller(refused: list[Outgoing]) -> list[list[Outgoing]]:
    """Give up what can never be sent; return what is sent in its place.

    An answer that is too large for its topic is a fault of the deployment (the topic's limit is
    that of a request, and answers are far smaller). Its transaction has committed; the machine
    asks again, and an operator sees the metric. Waiting for a larger topic would stop everybody.
    """
    instead: list[list[Outgoing]] = []
    for record in refused:
        smaller = record.without_content()
        if smaller is None:
            metrics.UNSENDABLE.labels(record.kind.value).inc()
            _log.error(
                "record given up, larger than its topic allows",
                topic=record.topic,
                kind=record.kind.value,
                size=len(record.value),
            )
        else:
            instead.append([smaller])
    return instead


async def _back_off(failures: int) -> None:
    longest = min(_FIRST_BACKOFF_S * 2**failures, _GREATEST_BACKOFF_S)
    await asyncio.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - jitter is no secret


async def _close(producer: Producer) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await producer.stop()
    except Exception:  # noqa: BLE001 - what cannot be closed is given up
        # `stop` waits for what is still to be sent; here nobody wants it any more.
        for part, method in (("_sender", "close"), ("client", "close")):
            if (inside := getattr(producer, part, None)) is not None:
                await getattr(inside, method)()
