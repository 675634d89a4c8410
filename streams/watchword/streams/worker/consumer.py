"""aiokafka's consumer as the source needs it, and the few looks inside it that it does not offer."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, cast

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from watchword.streams.kafka_closing import close as stop_client
from watchword.streams.worker import records
from watchword.streams.worker.options import MIB, WorkerOptions

Message = ConsumerRecord[bytes | None, bytes | None]

_CLOSE_S = 2.0


class Consumer(Protocol):
    """What the source calls."""

    async def start(self) -> None: ...  # noqa: D102
    def stop(self) -> Coroutine[Any, Any, None]: ...  # noqa: D102
    def subscribe(self, topics: list[str], *, listener: ConsumerRebalanceListener) -> None: ...  # noqa: D102
    def assignment(self) -> set[TopicPartition]: ...  # noqa: D102
    async def getmany(  # noqa: D102
        self, *, timeout_ms: int, max_records: int
    ) -> Mapping[TopicPartition, list[Message]]: ...
    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...  # noqa: D102
    async def committed(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    async def beginning_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    async def end_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    def highwater(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def seek(self, partition: TopicPartition, offset: int) -> None: ...  # noqa: D102
    def pause(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def paused(self) -> set[TopicPartition]: ...  # noqa: D102
    def resume(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...  # noqa: D102


ConsumerFactory = Callable[[], Consumer]


def consumer_factory(options: WorkerOptions) -> ConsumerFactory:
    """Return what makes a consumer of the group; it has to be subscribed after its start.

    The offsets are ours: none is reset (`auto_offset_reset`), none is committed by the client.

    Raises:
        WrongVersion: the parser's guard does not fit this aiokafka.
    """
    records.install()
    limits = options.limits

    def make() -> Consumer:
        made = AIOKafkaConsumer(
            **options.kafka.client_options(),
            group_id=options.group,
            group_instance_id=options.name,
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=int(limits.session_timeout_s * 1000),
            heartbeat_interval_ms=int(limits.heartbeat_s * 1000),
            max_poll_interval_ms=int(limits.max_poll_interval_s * 1000),
            metadata_max_age_ms=int(limits.metadata_age_s * 1000),
            # Longer than a rebalance may take, which a request to join waits for.
            request_timeout_ms=int(limits.session_timeout_s * 1000) + 4000,
            # What the client fetches ahead is not in our budget; bound it as well.
            fetch_max_bytes=16 * MIB,
            max_partition_fetch_bytes=MIB,
        )
        return cast("Consumer", made)

    return make


def trouble(consumer: Consumer) -> str | None:
    """Return why the consumer cannot work at the moment, though it raises nothing.

    It goes on trying by itself; what it tries is not to be seen from outside.
    """
    coordinator = _inside(consumer, "_coordinator")
    if coordinator is not None and coordinator.coordinator_id is None:
        return "no answer from the group's coordinator"
    return None


def is_dead(consumer: Consumer) -> bool:
    """Tell whether the task that fetches has ended, in which case nothing would ever arrive again."""
    fetcher = _inside(consumer, "_fetcher")
    return fetcher is not None and fetcher.error_future.done()


def learn_whether_it_leads(consumer: Consumer) -> None:
    """Have a consumer join once more unless it knows that it leads its group.

    Whoever leads looks for new partitions. A static member that comes back within its session gets its
    partitions again without a rebalance, and leads again if it led before; but the broker tells it so only
    when it joins anew (before KIP-814, which aiokafka does not speak), and until then nobody looks. For a
    member that does not lead the broker changes nothing.
    """
    coordinator = _inside(consumer, "_coordinator")
    if coordinator is not None and getattr(coordinator, "_group_subscription", None) is None:
        coordinator.request_rejoin()


async def close(consumer: Consumer) -> None:
    """Stop a consumer, and go on without it if that takes long.

    A static member does not leave its group: a restart within the session keeps its partitions.
    """
    await stop_client(consumer, patience_s=_CLOSE_S)


def _inside(consumer: Consumer, name: str) -> Any:  # noqa: ANN401 - aiokafka has no types
    return getattr(consumer, name, None)
