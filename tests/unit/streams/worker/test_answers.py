"""Answers arrive, whatever happens to a producer."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
)

from tests.support.waiting import until
from watchword.streams.worker import answers as module
from watchword.streams.worker.answers import Answers
from watchword.streams.worker.outgoing import CONTENT, Kind, Outgoing

LIMIT = 100


@dataclass
class Kafka:
    """What has arrived, and what is wrong at the moment."""

    arrived: list[Outgoing] = field(default_factory=list[Outgoing])
    producers: list["FakeProducer"] = field(default_factory=list["FakeProducer"])
    unreachable: int = 0
    """So many more starts fail."""
    silent: int = 0
    """So many more records are never acknowledged."""
    failures: list[KafkaError] = field(default_factory=list[KafkaError])
    """For the records to come, one each."""

    def make(self) -> "FakeProducer":
        self.producers.append(FakeProducer(self))
        return self.producers[-1]


@dataclass
class FakeProducer:
    """Behaves as aiokafka's does: wedged for good after one rejection."""

    kafka: Kafka
    is_wedged: bool = False
    is_stopped: bool = False

    async def start(self) -> None:
        if self.kafka.unreachable:
            self.kafka.unreachable -= 1
            raise KafkaConnectionError

    async def stop(self) -> None:
        self.is_stopped = True

    async def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        *,
        headers: list[tuple[str, bytes | None]],
    ) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        assert type(headers) is list  # aiokafka takes nothing else
        error = self._outcome(len(value))
        if self.kafka.silent:
            self.kafka.silent -= 1
        elif error is not None:
            self.is_wedged = True
            future.set_exception(error)
        else:
            self.kafka.arrived.append(Outgoing(Kind.ANSWER, topic, key, value, tuple(headers)))
            future.set_result(None)
        return future

    def _outcome(self, size: int) -> KafkaError | None:
        if self.is_wedged:
            return OutOfOrderSequenceNumber()
        if size > LIMIT:
            return MessageSizeTooLargeError()
        return self.kafka.failures.pop(0) if self.kafka.failures else None


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_BACKOFF_S", 0.0)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
async def answers(kafka: Kafka) -> Answers:
    return Answers(kafka.make, deadline_s=0.05)


def _records(*values: bytes) -> list[Outgoing]:
    return [Outgoing(Kind.ANSWER, "join.responses", b"k", value) for value in values]


def _values(kafka: Kafka) -> list[bytes]:
    return [record.value for record in kafka.arrived]


async def test_one_producer_carries_all_batches(kafka: Kafka, answers: Answers) -> None:
    await answers.send(_records(b"a", b"b"))
    await answers.send(_records(b"c"))
    assert _values(kafka) == [b"a", b"b", b"c"]
    assert len(kafka.producers) == 1
    assert answers.problem() is None


async def test_nothing_to_send_needs_no_kafka(kafka: Kafka, answers: Answers) -> None:
    await answers.send([])
    assert not kafka.producers


async def test_after_an_error_another_producer_sends_what_is_left(
    kafka: Kafka, answers: Answers
) -> None:
    """An idempotent producer that was rejected once never delivers to that partition again."""
    kafka.failures = [KafkaError(), KafkaError()]
    await answers.send(_records(b"a", b"b", b"c"))
    assert sorted(_values(kafka)) == [b"a", b"b", b"c"]
    assert len(kafka.producers) == 3
    await asyncio.sleep(0)
    assert [producer.is_stopped for producer in kafka.producers] == [True, True, False]


async def test_a_producer_that_is_silent_is_replaced_at_the_deadline(
    kafka: Kafka, answers: Answers
) -> None:
    kafka.silent = 1
    await answers.send(_records(b"a", b"b"))
    assert sorted(_values(kafka)) == [b"a", b"b"]
    assert len(kafka.producers) == 2


async def test_while_kafka_is_away_the_worker_waits_and_says_so(
    kafka: Kafka, answers: Answers
) -> None:
    kafka.unreachable = 10**9
    sending = asyncio.create_task(answers.send(_records(b"a")))
    await until(lambda: len(kafka.producers) >= 3, "several tries")
    assert answers.problem() == "Kafka: KafkaConnectionError"
    kafka.unreachable = 0
    await sending
    assert _values(kafka) == [b"a"]
    assert answers.problem() is None


async def test_an_answer_that_no_topic_takes_does_not_stop_the_others(
    kafka: Kafka, answers: Answers
) -> None:
    """Waiting for it would stop the worker for good."""
    await answers.send(_records(b"a", b"x" * (LIMIT + 1), b"b"))
    assert sorted(_values(kafka)) == [b"a", b"b"]


async def test_a_batch_that_is_refused_as_a_whole_is_sent_record_by_record(
    kafka: Kafka, answers: Answers
) -> None:
    kafka.failures = [MessageSizeTooLargeError()]
    await answers.send(_records(b"a", b"b"))
    assert sorted(_values(kafka)) == [b"a", b"b"]


async def test_a_dead_letter_that_is_too_large_is_sent_without_its_content(
    kafka: Kafka, answers: Answers
) -> None:
    headers = (("watchword-offset", b"7"), (CONTENT, b"value"))
    letter = Outgoing(Kind.DEAD_LETTER, "join.requests.dlq", b"k", b"x" * (LIMIT + 1), headers)
    await answers.send([letter])
    (arrived,) = kafka.arrived
    assert arrived.value == b""
    assert ("watchword-offset", b"7") in arrived.headers


async def test_two_batches_replace_a_producer_once(kafka: Kafka, answers: Answers) -> None:
    kafka.silent = 2
    await asyncio.gather(answers.send(_records(b"a")), answers.send(_records(b"b")))
    assert sorted(_values(kafka)) == [b"a", b"b"]
    assert len(kafka.producers) == 2


async def test_a_cancelled_send_leaves_the_producer_to_the_next(
    kafka: Kafka, answers: Answers
) -> None:
    kafka.silent = 1
    sending = asyncio.create_task(answers.send(_records(b"a")))
    await until(lambda: not kafka.silent, "the record was handed over")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await answers.send(_records(b"b"))
    assert _values(kafka) == [b"b"]


async def test_stopping_closes_the_producer(kafka: Kafka, answers: Answers) -> None:
    await answers.start()
    await answers.send(_records(b"a"))
    await answers.stop()
    assert [producer.is_stopped for producer in kafka.producers] == [True]


async def test_a_started_service_is_connected_before_the_first_answer(
    kafka: Kafka, answers: Answers
) -> None:
    assert answers.problem() == "not connected yet"
    kafka.unreachable = 2
    await answers.start()
    await until(lambda: answers.problem() is None, "the producer is connected")
    assert len(kafka.producers) == 3
    await answers.stop()


async def test_a_lost_producer_is_replaced_before_the_next_answer(
    kafka: Kafka, answers: Answers
) -> None:
    """Else a worker without work would not be ready for ever."""
    await answers.start()
    await answers.send(_records(b"x" * (LIMIT + 1)))
    await until(lambda: answers.problem() is None, "a producer is connected")
    assert not kafka.producers[-1].is_wedged
    await answers.stop()
