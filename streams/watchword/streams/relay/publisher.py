"""Sending rows to Kafka, and saying of each whether it is there.

One idempotent producer, acks=all, no transactions. After any error the producer object is replaced:
an idempotent aiokafka producer stays wedged on a partition after one rejection, and would go on
sending what nobody waits for any more.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from aiokafka.partitioner import (
    murmur2,  # pyright: ignore[reportUnknownVariableType] # it has no annotations
)

from watchword.handlers.store.relay import Row
from watchword.streams.kafka_clients import BATCH_BYTES, KafkaConnection
from watchword.streams.relay import metrics

_log = structlog.get_logger(__name__)

_TOPIC_RETRY_S = 2.0
_ABANDON_S = 0.5

TOPIC_MISSING = "TopicMissing"

Producer: TypeAlias = Any
"""An `AIOKafkaProducer`, whose methods have few annotations."""

_PRODUCERS_OWN = (
    ClusterAuthorizationFailedError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
"""Errors that say something of the producer, nothing of the record."""


@dataclass(slots=True)
class Outcome:
    """What became of a wave, by position. What is neither acknowledged nor rejected is unknown."""

    acknowledged: set[int] = field(default_factory=set[int])
    rejected: dict[int, str] = field(default_factory=dict[int, str])
    """Kafka will not have these records as they are, or not in company with each other."""
    is_wedged: bool = False
    """A broker has rejected something, so the producer is of no more use."""
    failure: str | None = None
    """Why Kafka as a whole did not answer; the wave should be sent again."""


MissingTopics = dict[str, float]
"""The topics that rows name and Kafka does not have (or not for us), and when to look again (monotonic)."""

Chain = list[tuple[int, Row, list[tuple[str, bytes]]]]


class Publisher:
    """Owns a producer, and replaces it after any error."""

    def __init__(
        self, connection: KafkaConnection, *, request_s: float, missing: MissingTopics
    ) -> None:
        """Connect with the first wave; `request_s` is the longest that a broker may take."""
        self._connection = connection
        self._request_ms = int(request_s * 1000)
        self._missing = missing
        self._producer: Producer = None

    async def publish(
        self, rows: Sequence[Row], *, within_s: float, singly: bool = False
    ) -> Outcome:
        """Send rows, ordered by shard and `seq`, and await every acknowledgement within the time.

        Rows of one partition go out one batch after the other, and none follows one that was not
        acknowledged: so none overtakes a rejected row of its key. `singly` sends one record at a
        time and stops at the first that is not acknowledged, so that a rejection names its row.
        """
        outcome = Outcome()
        try:
            async with asyncio.timeout(within_s):
                producer = await self._started()
                chains = await self._chains(producer, rows, outcome)
                if singly:
                    await self._send_singly(producer, chains, outcome)
                else:
                    await asyncio.gather(
                        *(self._send(producer, at, chain, outcome) for at, chain in chains.items())
                    )
        except TimeoutError:
            outcome.failure = outcome.failure or "no acknowledgement in time"
        except (KafkaError, OSError) as error:
            outcome.failure = outcome.failure or _words(error)
        if outcome.failure is not None or outcome.is_wedged:
            await self.close()
            metrics.REPLACED.inc()
        return outcome

    async def close(self) -> None:
        """Throw the producer away; nothing that it still holds is sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _abandon(producer)

    async def _started(self) -> Producer:
        if self._producer is None:
            producer: Producer = AIOKafkaProducer(
                **self._connection.client_options(),
                acks="all",
                enable_idempotence=True,
                max_batch_size=BATCH_BYTES,
                request_timeout_ms=self._request_ms,
            )
            try:
                await producer.start()
            except BaseException:
                await _abandon(producer)
                raise
            self._producer = producer
        return self._producer

    async def _chains(
        self, producer: Producer, rows: Sequence[Row], outcome: Outcome
    ) -> dict[tuple[str, int], Chain]:
        """Return the records of each partition in order; a shard ends before its first bad row."""
        chains: dict[tuple[str, int], Chain] = {}
        counts: dict[str, int | str] = {}
        stopped: set[int] = set()
        for position, row in enumerate(rows):
            if row.shard in stopped:
                continue
            if row.topic not in counts:
                counts[row.topic] = await self._partitions(producer, row.topic)
            count = counts[row.topic]
            headers = _headers(row.headers)
            problem = count if isinstance(count, str) else None
            problem = problem or ("BadHeaders" if headers is None else None)
            if problem is not None or headers is None or isinstance(count, str):
                outcome.rejected[position] = problem or ""
                stopped.add(row.shard)
                continue
            at = (row.topic, _partition(row.key, count))
            chains.setdefault(at, []).append((position, row, headers))
        return chains

    async def _partitions(self, producer: Producer, topic: str) -> int | str:
        """Return how many partitions a topic has, or what is wrong with it."""
        known = producer.client.cluster.partitions_for_topic(topic)
        if known is not None:
            return len(known)
        if time.monotonic() < self._missing.get(topic, 0.0):
            return TOPIC_MISSING
        # Raises if Kafka is away, which says nothing of the topic. To ask for the topic alone would
        # go on asking for it until the request's time is over.
        everything = await producer.client.fetch_all_metadata()
        if everything.partitions_for_topic(topic) is None:
            self._missing[topic] = time.monotonic() + _TOPIC_RETRY_S
            return TOPIC_MISSING
        self._missing.pop(topic, None)
        found: set[int] = await producer.partitions_for(topic)
        return len(found)

    async def _send(
        self, producer: Producer, at: tuple[str, int], chain: Chain, outcome: Outcome
    ) -> bool:
        """Send the records of one partition, batch after batch; return whether all are acknowledged."""
        topic, partition = at
        start = 0
        while start < len(chain):
            batch = producer.create_batch()
            end = start
            # The time of publishing: a record as old as a long outage would be past its retention.
            while end < len(chain) and batch.append(
                timestamp=None,
                key=chain[end][1].key,
                value=chain[end][1].value,
                headers=chain[end][2],
            ):
                end += 1
            batch.close()
            positions = [position for position, _, _ in chain[start:end]]
            try:
                await (await producer.send_batch(batch, topic, partition=partition))
            except KafkaError as error:
                if _is_rejection(error):
                    outcome.is_wedged = True
                    outcome.rejected.update(dict.fromkeys(positions, _words(error)))
                else:
                    outcome.failure = outcome.failure or _words(error)
                return False
            outcome.acknowledged.update(positions)
            metrics.PUBLISHED.labels(topic).inc(len(positions))
            start = end
        return True

    async def _send_singly(
        self, producer: Producer, chains: dict[tuple[str, int], Chain], outcome: Outcome
    ) -> None:
        records = [(record, at) for at, chain in chains.items() for record in chain]
        for record, at in sorted(records, key=lambda found: found[0][0]):
            if not await self._send(producer, at, [record], outcome):
                return


def _is_rejection(error: KafkaError) -> bool:
    return (
        isinstance(error, BrokerResponseError)
        and not error.retriable
        and not isinstance(error, _PRODUCERS_OWN)
    )


def _words(error: Exception) -> str:
    return type(error).__name__


def _headers(text: str) -> list[tuple[str, bytes]] | None:
    """Return a record's headers, or None if they are no object of text."""
    try:
        return [(name, value.encode()) for name, value in json.loads(text).items()]
    except (ValueError, AttributeError):
        return None


@lru_cache(maxsize=4096)
def _partition(key: bytes, partitions: int) -> int:
    """Return the partition that every default client chooses for a key (murmur2)."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


async def _abandon(producer: Producer) -> None:
    """Close a producer without its flush, which would send what was given up, and may wait for ever.

    aiokafka has no public way to do it: the sending task is cancelled before the connections are
    closed, or it would open new ones; a second time, because it then waits for what was in flight.
    """
    sender: asyncio.Task[None] | None = producer._sender.sender_task  # noqa: SLF001 - see above
    if sender is not None:
        sender.cancel()
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        async with asyncio.timeout(_ABANDON_S):
            await producer.client.close()
    if sender is not None:
        sender.cancel()
        await asyncio.wait({sender}, timeout=_ABANDON_S)
    producer._closed = True  # noqa: SLF001 - or its finaliser warns
