"""aiokafka's clients as the gateway uses them, with types: it has none of its own to rely on."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition

from watchword.streams.kafka_clients import BATCH_BYTES, KafkaConnection

Record = ConsumerRecord[bytes | None, bytes | None]

_METADATA_AGE_MS = 3_000
"""A partition that was added is noticed within this: until then nobody hears of the answers that workers write there."""


class Consumer(Protocol):
    """What a tail calls."""

    async def start(self) -> None: ...  # noqa: D102 - the names are aiokafka's
    def stop(self) -> Coroutine[Any, Any, None]: ...  # noqa: D102
    async def getone(self, *partitions: TopicPartition) -> Record: ...  # noqa: D102
    async def position(self, partition: TopicPartition) -> int: ...  # noqa: D102
    def assignment(self) -> set[TopicPartition]: ...  # noqa: D102
    def highwater(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def seek(self, partition: TopicPartition, offset: int) -> None: ...  # noqa: D102
    async def end_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    async def offsets_for_times(  # noqa: D102
        self, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]: ...


class Producer(Protocol):
    """What the sender calls."""

    async def start(self) -> None: ...  # noqa: D102
    def stop(self) -> Coroutine[Any, Any, None]: ...  # noqa: D102
    async def partitions_for(self, topic: str) -> set[int]: ...  # noqa: D102
    async def send_and_wait(  # noqa: D102
        self, topic: str, value: bytes, *, key: bytes, headers: Sequence[tuple[str, bytes]]
    ) -> object: ...


def new_consumer(
    connection: KafkaConnection, topic: str, *, request_s: float, fetch_bytes: int
) -> Consumer:
    """Return a consumer of all partitions of one topic, without a group; it commits nothing.

    Where a position is not there any more (retention passed it), it goes on at the earliest.
    """
    made: Any = AIOKafkaConsumer(
        topic,
        **connection.client_options(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=_METADATA_AGE_MS,
        request_timeout_ms=int(request_s * 1000),
        max_partition_fetch_bytes=fetch_bytes,
    )
    return cast("Consumer", made)


def new_producer(
    connection: KafkaConnection, *, deadline_s: float, max_record_bytes: int
) -> Producer:
    """Return a producer whose records are acknowledged by all in-sync replicas or expire."""
    made: Any = AIOKafkaProducer(
        **connection.client_options(),
        acks="all",
        enable_idempotence=False,
        max_request_size=max_record_bytes,
        max_batch_size=BATCH_BYTES,
        metadata_max_age_ms=_METADATA_AGE_MS,
        request_timeout_ms=int(deadline_s * 1000),
    )
    return cast("Producer", made)
