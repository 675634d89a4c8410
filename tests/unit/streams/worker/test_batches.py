"""Judged, answered, and only then done."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest
from aiokafka.structs import TopicPartition

from tests.support.echo_service import EchoService
from tests.support.waiting import until
from watchword.handlers.join.records import Answer, Incoming
from watchword.streams import failpoints
from watchword.streams.worker.answers import Answers
from watchword.streams.worker.backlog import Backlog, Budget, Delivery
from watchword.streams.worker.batches import Batches, BatchParts, WrongAnswers
from watchword.streams.worker.options import WorkerLimits, WorkerTopics
from watchword.streams.worker.outgoing import Kind, Outgoing
from watchword.streams.worker.tenures import Tenure, Tenures
from watchword.streams.worker.unreadable import Extent, Fault, Unreadable

TOPIC = "join.requests"


class FakeAnswers(Answers):
    """Acknowledges when it is let."""

    def __init__(self) -> None:
        """Connect to nothing."""
        super().__init__(lambda: pytest.fail("no Kafka here"), deadline_s=1)
        self.sent: list[Outgoing] = []
        self.may_acknowledge = asyncio.Event()
        self.may_acknowledge.set()

    async def send(self, records: Sequence[Outgoing]) -> None:
        self.sent += records
        await self.may_acknowledge.wait()


@dataclass
class Bench:
    """Batches without Kafka."""

    service: EchoService = field(default_factory=EchoService)
    answers: FakeAnswers = field(default_factory=FakeAnswers)
    budget: Budget = field(default_factory=lambda: Budget(1000, 10**9, 1000))
    tenures: Tenures = field(default_factory=Tenures)

    def __post_init__(self) -> None:
        """Put the parts together."""
        self.backlog = Backlog(self.budget)
        self.batches = Batches(
            BatchParts(self.backlog, self.service, self.answers, WorkerTopics()), WorkerLimits()
        )
        self.tenure: Tenure = self.tenures.begin(TopicPartition(TOPIC, 0), 0)

    def arrive(self, *values: bytes | Unreadable) -> None:
        for value in values:
            offset = self.tenure.prefix.expected
            self.tenure.prefix.deliver(offset)
            unreadable = value if isinstance(value, Unreadable) else None
            incoming = Incoming(None if unreadable is not None else value, TOPIC, 0, offset, b"k")
            self.budget.take(10)
            self.backlog.put([Delivery(incoming, unreadable, self.tenure, 10)])

    @property
    def committable(self) -> int:
        return self.tenure.prefix.committable


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    made = Bench()
    await made.batches.start()
    yield made
    await made.batches.stop()


async def test_a_record_is_done_when_its_answer_is_acknowledged(bench: Bench) -> None:
    bench.answers.may_acknowledge.clear()
    bench.arrive(b"a")
    await until(lambda: bool(bench.answers.sent), "the answer was sent")
    assert bench.committable == 0
    bench.answers.may_acknowledge.set()
    await until(lambda: bench.committable == 1, "the record is done")
    assert bench.budget.room == 1000


async def test_while_all_lanes_are_busy_the_next_batch_grows(bench: Bench) -> None:
    first, second = bench.service.hold(0, 0), bench.service.hold(0, 1)
    bench.arrive(b"a")
    await until(lambda: bench.service.running == 1, "the first batch runs")
    bench.arrive(b"b")
    await until(lambda: bench.service.running == 2, "the second batch runs")
    bench.arrive(*[b"c"] * 100)
    second.set()
    first.set()
    await until(lambda: bench.committable == 102, "all is done")
    assert bench.service.batches == [1, 1, 64, 36]
    assert bench.service.most_running == 2


async def test_a_later_batch_that_ends_first_commits_nothing(bench: Bench) -> None:
    held = bench.service.hold(0, 0)
    bench.arrive(b"a")
    await until(lambda: bench.service.running == 1, "the first batch runs")
    bench.arrive(b"b", b"c")
    await until(lambda: len(bench.answers.sent) == 2, "the second batch is answered")
    await asyncio.sleep(0)
    assert bench.committable == 0
    held.set()
    await until(lambda: bench.committable == 3, "all is done")


async def test_an_unreadable_record_is_quarantined_and_its_neighbours_are_judged(
    bench: Bench,
) -> None:
    bench.arrive(b"a", Unreadable.of(Fault.HEADER_NAME, b"bytes", Extent.VALUE), b"b")
    await until(lambda: bench.committable == 3, "all is done")

    assert [i.value for i in bench.service.judged] == [b"a", b"b"]
    ((quarantined, reason),) = bench.service.quarantined
    assert (quarantined.offset, quarantined.value, reason) == (1, None, "poison")
    assert [(o.kind, o.value) for o in bench.answers.sent] == [
        (Kind.ANSWER, b"a"),
        (Kind.DEAD_LETTER, b"bytes"),
        (Kind.ANSWER, b"b"),
    ]


async def test_what_cannot_be_read_is_answered_and_kept_as_a_dead_letter(bench: Bench) -> None:
    bench.service.dead_letter_of = lambda _: "undecodable"
    bench.service.value_of = lambda _: b"signed"
    bench.arrive(b"junk")
    await until(lambda: bench.committable == 1, "all is done")
    assert [(o.kind, o.value) for o in bench.answers.sent] == [
        (Kind.ANSWER, b"signed"),
        (Kind.DEAD_LETTER, b"junk"),
    ]


async def test_the_points_lie_around_the_response(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault suite ends the process exactly there."""
    reached: list[tuple[str, int, int]] = []

    def note(name: str) -> None:
        reached.append((name, len(bench.answers.sent), bench.committable))

    monkeypatch.setattr(failpoints, "hit", note)
    bench.arrive(b"a")
    await until(lambda: bench.committable == 1, "all is done")
    assert reached == [
        ("after-commit-before-response", 0, 0),
        ("after-response-before-offset", 1, 0),
    ]


async def test_settling_waits_for_what_is_in_flight_but_not_for_ever(bench: Bench) -> None:
    assert await bench.batches.settle(0)
    held = bench.service.hold(0, 0)
    bench.arrive(b"a")
    await until(lambda: bench.service.running == 1, "the batch runs")
    assert not await bench.batches.settle(0.01)
    held.set()
    assert await bench.batches.settle(5)
    assert bench.committable == 1


async def test_stopping_gives_up_what_is_in_flight_unacknowledged(bench: Bench) -> None:
    bench.service.hold(0, 0)
    bench.arrive(b"a")
    await until(lambda: bench.service.running == 1, "the batch runs")
    await bench.batches.stop()
    assert bench.committable == 0
    assert bench.budget.room == 1000


class Broken(EchoService):
    async def judge(self, batch: Sequence[Incoming]) -> list[Answer]:
        if batch[0].value == b"raise":
            raise LookupError
        return []


@pytest.mark.parametrize(("value", "reason"), [(b"raise", LookupError), (b"forget", WrongAnswers)])
async def test_a_bug_of_the_service_ends_the_worker_with_nothing_acknowledged(
    value: bytes, reason: type[Exception]
) -> None:
    bench = Bench(service=Broken())
    await bench.batches.start()
    bench.arrive(value)
    await until(lambda: bench.batches.crashed, "the service has crashed")
    assert isinstance(bench.batches.crash_reason, reason)
    assert bench.committable == 0
    await bench.batches.stop()
