"""The source with a consumer that misbehaves as no broker does on demand."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import pytest
from aiokafka import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from tests.support.waiting import until
from watchword.streams.worker import source as module
from watchword.streams.worker.backlog import Budget, Deliveries, Delivery
from watchword.streams.worker.exits import ExitCode
from watchword.streams.worker.options import WorkerLimits
from watchword.streams.worker.source import RequestSource, SourceParts

Message = ConsumerRecord[bytes | None, bytes | None]

TOPIC = "join.requests"
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def message(offset: int, partition: TopicPartition = ZERO, value: bytes = b"v") -> Message:
    return ConsumerRecord(
        *(partition.topic, partition.partition, offset, 0, 0, b"k", value, None, 1, 1, ())
    )


@dataclass
class FakeConsumer:
    """Does what it is told."""

    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    start_error: Exception | None = None
    commit_error: Exception | None = None
    fetches: "asyncio.Queue[dict[TopicPartition, list[Message]] | Exception]" = field(
        default_factory=asyncio.Queue
    )
    assigned: set[TopicPartition] = field(default_factory=set[TopicPartition])
    paused_now: set[TopicPartition] = field(default_factory=set[TopicPartition])
    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    highwaters: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    polls: int = 0
    is_stopped: bool = False
    listener: ConsumerRebalanceListener | None = None

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def stop(self) -> None:
        self.is_stopped = True

    def subscribe(self, topics: list[str], *, listener: ConsumerRebalanceListener) -> None:
        assert topics == [TOPIC]
        self.listener = listener

    async def assign(self, *partitions: TopicPartition) -> None:
        """Be assigned partitions by the group."""
        assert self.listener is not None
        await self.listener.on_partitions_revoked(self.assigned)
        self.assigned = set(partitions)
        await self.listener.on_partitions_assigned(self.assigned)

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    async def getmany(
        self, *, timeout_ms: int, max_records: int
    ) -> Mapping[TopicPartition, list[Message]]:
        assert max_records >= 1
        self.polls += 1
        if self.paused_now:
            return {}
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                fetched = await self.fetches.get()
        except TimeoutError:
            return {}
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def highwater(self, partition: TopicPartition) -> int | None:
        assert partition in self.assigned
        return self.highwaters.get(partition)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.committed_offsets.update(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        return self.committed_offsets.get(partition)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 1000)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused_now |= set(partitions)

    def paused(self) -> set[TopicPartition]:
        return self.paused_now

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused_now -= set(partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1} if topic == TOPIC else None


class EndedAtOnce(Exception):
    pass


@dataclass
class Bench:
    """A source and its surroundings."""

    consumers: list[FakeConsumer]
    budget: Budget = field(default_factory=lambda: Budget(4, 10**9, 1000))
    delivered: list[Delivery] = field(default_factory=list[Delivery])
    ended: list[ExitCode] = field(default_factory=list[ExitCode])
    is_settled: asyncio.Event = field(default_factory=asyncio.Event)
    may_emit: asyncio.Event = field(default_factory=asyncio.Event)
    made: int = 0

    def __post_init__(self) -> None:
        """Build the source."""
        self.is_settled.set()
        self.may_emit.set()
        parts = SourceParts(
            topic=TOPIC,
            make_consumer=self._make,
            budget=self.budget,
            emit=self._emit,
            settle=self._settle,
            gate=lambda: None,
            taken_over=lambda: None,
            fatal=self._fatal,
        )
        self.source = RequestSource(parts, WorkerLimits(commit_every_s=0.01))

    def _make(self) -> FakeConsumer:
        self.made += 1
        return self.consumers[self.made - 1]

    async def _emit(self, deliveries: Deliveries) -> None:
        self.delivered.extend(deliveries)
        await self.may_emit.wait()

    async def _settle(self, within_s: float) -> bool:
        del within_s
        await self.is_settled.wait()
        return True

    def _fatal(self, code: ExitCode) -> NoReturn:
        self.ended.append(code)
        raise EndedAtOnce

    def finish(self, *offsets: int) -> None:
        for delivery in self.delivered:
            if delivery.incoming.offset in offsets:
                delivery.tenure.prefix.done(delivery.incoming.offset)
                self.budget.give_back(delivery.size)

    @property
    def offsets(self) -> list[int]:
        return [delivery.incoming.offset for delivery in self.delivered]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(module, "_STALLED_AFTER_S", 0.01)


@pytest.fixture
async def consumer() -> FakeConsumer:
    return FakeConsumer({ZERO: 10})


@pytest.fixture
async def bench(consumer: FakeConsumer) -> AsyncGenerator[Bench]:
    made = Bench([consumer, FakeConsumer({ZERO: 10})])
    await made.source.start()
    await until(lambda: consumer.listener is not None, "the source has subscribed")
    await consumer.assign(ZERO)
    await until(lambda: ZERO in consumer.positions, "the partition is anchored")
    yield made
    await made.source.stop()


async def test_it_begins_at_the_committed_offset(bench: Bench, consumer: FakeConsumer) -> None:
    consumer.fetches.put_nowait({ZERO: [message(10), message(11)]})
    await until(lambda: bench.offsets == [10, 11], "both are delivered")
    assert consumer.positions == {ZERO: 10}


async def test_a_skipped_offset_ends_the_process_and_nothing_more_is_acknowledged(
    bench: Bench, consumer: FakeConsumer
) -> None:
    """A client that leaves one out would have it lost for good."""
    consumer.fetches.put_nowait({ZERO: [message(10), message(12)]})
    await until(lambda: bool(bench.ended), "the process would have ended")
    assert bench.ended == [ExitCode.OFFSET_SKIPPED]
    assert not bench.delivered


async def test_the_first_record_is_no_measure_of_where_to_begin(
    bench: Bench, consumer: FakeConsumer
) -> None:
    """After two quick rebalances a consumer was seen to leave out the very first one."""
    consumer.fetches.put_nowait({ZERO: [message(11)]})
    await until(lambda: bool(bench.ended), "the process would have ended")
    assert not bench.delivered


async def test_a_repeat_is_dropped(bench: Bench, consumer: FakeConsumer) -> None:
    consumer.fetches.put_nowait({ZERO: [message(9), message(10), message(10), message(11)]})
    await until(lambda: 11 in bench.offsets, "the last is delivered")
    assert bench.offsets == [10, 11]


async def test_only_what_is_done_without_a_hole_is_committed(
    bench: Bench, consumer: FakeConsumer
) -> None:
    consumer.fetches.put_nowait({ZERO: [message(10), message(11), message(12)]})
    await until(lambda: len(bench.offsets) == 3, "all are delivered")
    bench.finish(10, 12)
    await until(lambda: consumer.committed_offsets[ZERO] != 10, "something is committed")
    assert consumer.committed_offsets == {ZERO: 11}
    bench.finish(11)
    await until(lambda: consumer.committed_offsets[ZERO] == 13, "the rest is committed")


async def test_a_commit_that_fails_after_a_rebalance_is_dropped(
    bench: Bench, consumer: FakeConsumer
) -> None:
    consumer.commit_error = CommitFailedError()
    consumer.fetches.put_nowait({ZERO: [message(10)]})
    await until(lambda: bench.offsets == [10], "it is delivered")
    bench.finish(10)
    await asyncio.sleep(0.05)
    assert not bench.source.crashed
    consumer.commit_error = None
    await until(lambda: consumer.committed_offsets[ZERO] == 11, "the next one says the same")


async def test_work_in_memory_is_bounded_and_the_worker_stays_in_the_group(
    bench: Bench, consumer: FakeConsumer
) -> None:
    """While PostgreSQL is away the client must be asked now and then, else it leaves the group."""
    consumer.fetches.put_nowait({ZERO: [message(10 + n) for n in range(4)]})
    consumer.fetches.put_nowait({ZERO: [message(14)]})
    await until(lambda: len(bench.offsets) == 4, "the budget is used up")
    polls = consumer.polls
    await until(lambda: consumer.polls > polls + 2, "the client is asked on")
    assert consumer.paused_now == {ZERO}
    assert len(bench.offsets) == 4
    bench.finish(10)
    await until(lambda: len(bench.offsets) == 5, "it goes on")
    assert not consumer.paused_now


async def test_what_is_done_after_the_revocation_is_not_committed(
    bench: Bench, consumer: FakeConsumer
) -> None:
    """The partition's new owner judges it again; a commit would take it from him."""
    consumer.fetches.put_nowait({ZERO: [message(10)]})
    await until(lambda: bench.offsets == [10], "it is delivered")
    await consumer.assign(ZERO, ONE)
    await until(lambda: ONE in consumer.positions, "the partitions are anchored")
    assert bench.delivered[0].tenure.is_over
    bench.finish(10)
    await asyncio.sleep(0.05)
    assert consumer.committed_offsets == {ZERO: 10}


async def test_a_revocation_waits_for_what_is_in_flight_and_commits_it(
    bench: Bench, consumer: FakeConsumer
) -> None:
    consumer.fetches.put_nowait({ZERO: [message(10), message(11)]})
    await until(lambda: bench.offsets == [10, 11], "both are delivered")
    bench.is_settled.clear()
    revoking = asyncio.create_task(consumer.assign())
    await asyncio.sleep(0.01)
    assert bench.source.problem() == "waiting for the group"
    bench.finish(10)
    bench.is_settled.set()
    await revoking
    assert consumer.committed_offsets == {ZERO: 11}


async def test_records_of_the_generation_before_are_not_taken_for_a_gap(
    bench: Bench, consumer: FakeConsumer
) -> None:
    """They were fetched, and the partition went and came back while they waited for room."""
    await consumer.assign(ZERO, ONE)
    await until(lambda: ONE in consumer.positions, "both partitions are anchored")
    bench.may_emit.clear()
    consumer.fetches.put_nowait({ONE: [message(0)], ZERO: [message(10), message(11)]})
    await until(lambda: bench.offsets == [0], "the other partition's waits")
    consumer.positions.clear()
    await consumer.assign(ZERO)
    bench.may_emit.set()
    await until(lambda: ZERO in consumer.positions, "the partition is anchored anew")
    consumer.fetches.put_nowait({ZERO: [message(10), message(11)]})
    await until(lambda: bench.offsets == [0, 10, 11], "all come again")
    assert not bench.ended


@pytest.mark.parametrize("error", [KafkaError("coordinator gone"), ConnectionResetError()])
async def test_after_an_error_another_consumer_goes_on(
    bench: Bench, consumer: FakeConsumer, error: Exception
) -> None:
    consumer.fetches.put_nowait(error)
    second = bench.consumers[1]
    await until(lambda: second.listener is not None, "another consumer has subscribed")
    assert consumer.is_stopped
    assert bench.source.problem() == "waiting for the group"
    await second.assign(ZERO)
    await until(lambda: ZERO in second.positions, "the partition is anchored")
    second.fetches.put_nowait({ZERO: [message(10)]})
    await until(lambda: bench.offsets == [10], "it goes on")


async def test_stopping_commits_and_closes(bench: Bench, consumer: FakeConsumer) -> None:
    consumer.fetches.put_nowait({ZERO: [message(10)]})
    await until(lambda: bench.offsets == [10], "it is delivered")
    bench.finish(10)
    await bench.source.stop()
    assert consumer.committed_offsets == {ZERO: 11}
    assert consumer.is_stopped


async def test_while_kafka_cannot_be_reached_the_problem_has_its_name() -> None:
    bench = Bench([FakeConsumer(start_error=KafkaConnectionError()) for _ in range(1000)])
    await bench.source.start()
    await until(lambda: bench.made > 2, "it tries again")
    assert bench.source.problem() == "Kafka: KafkaConnectionError"
    await bench.source.stop()
    assert all(consumer.is_stopped for consumer in bench.consumers[: bench.made])
