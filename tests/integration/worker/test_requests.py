"""A worker on a real Kafka."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

from tests.support.echo_service import EchoService
from tests.support.kafka import KafkaTopics
from tests.support.record_batches import Batch, send_raw
from tests.support.waiting import until
from tests.support.workers import Fleet
from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.topics import JOIN_REQUESTS, TOPICS

pytestmark = pytest.mark.kafka


@pytest.fixture
async def fleet(kafka_topics: KafkaTopics) -> Fleet:
    made = Fleet(kafka_topics, partitions=2)
    await made.create()
    return made


@pytest.fixture
def service() -> EchoService:
    return EchoService()


async def test_each_request_is_answered_and_committed(fleet: Fleet, service: EchoService) -> None:
    values = [b"request-%d" % n for n in range(200)]
    async with fleet.worker(service) as worker:
        await fleet.send(*values[:150], partition=0)
        await fleet.send(*values[150:], partition=1)
        await until(lambda: len(service.judged) == 200, "all are judged")
        await worker.is_ready()
    assert sorted(await fleet.answers()) == sorted(values)
    assert await fleet.committed() == {0: 150, 1: 50}


async def test_the_committed_offset_never_passes_an_unanswered_request(
    fleet: Fleet, service: EchoService
) -> None:
    """A worker that is killed now must find the request again."""
    held = service.hold(0, 3)
    await fleet.send(b"a", b"b", b"c")
    async with fleet.worker(service):
        await until(lambda: len(service.judged) == 3, "the first three are judged")
        await fleet.send(b"held")
        await until(lambda: service.running == 1, "the fourth is being judged")
        await fleet.send(b"d", b"e", b"f")
        await fleet.send(b"g", partition=1)
        await until(lambda: len(service.judged) == 8, "all the others are judged")
        async with asyncio.timeout(10):
            while (committed := await fleet.committed())[1] != 1:
                assert committed[0] in {None, 3}
        assert (await fleet.committed())[0] == 3
        held.set()
    assert await fleet.committed() == {0: 7, 1: 1}


async def test_a_worker_begins_where_the_last_one_ended(fleet: Fleet) -> None:
    first, second = EchoService(), EchoService()
    async with fleet.worker(first):
        await fleet.send(b"a")
        await until(lambda: len(first.judged) == 1, "the first is judged")
    await fleet.send(b"b")
    async with fleet.worker(second):
        await until(lambda: len(second.judged) == 1, "the second is judged")
    assert [incoming.value for incoming in second.judged] == [b"b"]


async def test_the_largest_junk_and_a_tombstone_are_judged_like_any_other(
    fleet: Fleet, service: EchoService
) -> None:
    service.dead_letter_of = lambda _: "undecodable"
    service.value_of = lambda _: b"invalid"
    junk = bytes(range(256)) * (MAX_REQUEST_BYTES // 256)
    async with fleet.worker(service), fleet.producer() as producer:
        await producer.send_and_wait(
            fleet.names.requests, junk, key=b"k", partition=0, headers=[("a", b"1"), ("b", b"")]
        )
        await producer.send_and_wait(fleet.names.requests, None, key=b"tombstone", partition=0)
        await until(lambda: len(service.judged) == 2, "both are judged")
    assert await fleet.answers() == [b"invalid"] * 2
    letter, tombstone = await fleet.read(fleet.names.dead_letters)
    assert (letter.key, letter.value) == (b"k", junk)
    assert dict(letter.headers) == {
        "watchword-reason": b"undecodable",
        "watchword-topic": fleet.names.requests.encode(),
        "watchword-partition": b"0",
        "watchword-offset": b"0",
        "watchword-content": b"value",
        "original.a": b"1",
        "original.b": b"",
    }
    assert (tombstone.key, tombstone.value) == (b"tombstone", b"")
    assert dict(tombstone.headers)["watchword-content"] == b"nothing"
    assert (await fleet.committed())[0] == 2


async def test_a_poison_record_costs_neither_its_batch_nor_the_group(
    fleet: Fleet, service: EchoService
) -> None:
    """Anybody who may write to the topic can put one there."""
    await send_raw(
        fleet.topics.bootstrap_servers,
        fleet.names.requests,
        Batch([b"a", b"poison", b"c"], named=[1]).renamed().raw,
        Batch([b"d", b"moved", b"f"], deltas=[0, 1_000_000, 2]).raw,
        Batch([b"g"]).raw,
    )
    async with fleet.worker(service) as worker:
        await until(lambda: len(service.judged) + len(service.quarantined) == 7, "all are seen")
        await worker.is_ready()
        await fleet.send(b"afterwards")
        await until(lambda: len(service.judged) == 6, "the next is judged")

    assert sorted(await fleet.answers()) == [b"a", b"afterwards", b"c", b"d", b"f", b"g"]
    assert [(i.partition, i.offset, i.value, reason) for i, reason in service.quarantined] == [
        (0, 1, None, "poison"),
        (0, 4, None, "poison"),
    ]
    letters = await fleet.read(fleet.names.dead_letters)
    assert [
        (m.value, dict(m.headers)["watchword-offset"], dict(m.headers)["watchword-fault"])
        for m in letters
    ] == [(b"poison", b"1", b"header-name"), (b"moved", b"4", b"offset")]
    assert (await fleet.committed())[0] == 8
    assert not fleet.ended


async def test_a_worker_may_begin_within_a_batch(fleet: Fleet, service: EchoService) -> None:
    await send_raw(
        fleet.topics.bootstrap_servers,
        fleet.names.requests,
        Batch([b"a", b"poison", b"c"], named=[1]).renamed().raw,
    )
    held = service.hold(0, 2)
    async with fleet.worker(service):
        await until(lambda: service.running == 1, "the batch is being judged")
        held.set()
    assert (await fleet.committed())[0] == 3


async def test_transactions_leave_no_gap(fleet: Fleet, service: EchoService) -> None:
    """Their markers take up offsets; a left-out offset would end the worker, again and again."""
    async with fleet.worker(service):
        await _transact(fleet, b"committed")
        await fleet.send(b"plain")
        async with asyncio.timeout(10):
            while (await fleet.committed())[0] != 3:
                assert not fleet.ended
    assert sorted(await fleet.answers()) == [b"committed", b"plain"]
    assert not fleet.ended


async def _transact(fleet: Fleet, value: bytes) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=fleet.topics.bootstrap_servers,
        transactional_id=f"{fleet.topics.prefix}somebody",
    )
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(fleet.names.requests, value, partition=0)
    finally:
        await producer.stop()


async def test_an_answer_that_its_topic_refuses_is_given_up_and_the_others_arrive(
    kafka_topics: KafkaTopics, service: EchoService
) -> None:
    """It can never be sent; waiting for it would stop the worker for good."""
    fleet = Fleet(kafka_topics, partitions=2)
    await fleet.create(responses={"max.message.bytes": "20000"})
    service.value_of = lambda i: b"x" * 40_000 if i.value == b"large" else i.value or b""
    await fleet.send(b"a", b"large", b"b", b"c")
    await fleet.send(b"d", partition=1)
    async with fleet.worker(service) as worker:
        await until(lambda: len(service.judged) == 5, "all are judged")
        await worker.is_ready()
    assert sorted(set(await fleet.answers())) == [b"a", b"b", b"c", b"d"]
    assert await fleet.committed() == {0: 4, 1: 1}


async def test_nothing_is_fetched_while_requests_cannot_be_judged(
    fleet: Fleet, service: EchoService
) -> None:
    problems: list[str] = ["no complete configuration"]
    gate = lambda: problems[0] if problems else None  # noqa: E731
    await fleet.send(b"a")
    async with fleet.worker(service, gate=gate) as worker:
        await until(
            lambda: set(worker.health.problems()) == {"service"}, "only the service is not ready"
        )
        assert not service.judged
        problems.clear()
        await until(lambda: len(service.judged) == 1, "the request is judged")
        await worker.is_ready()


async def test_what_producers_compress_arrives_expanded_and_bombs_do_not_arrive(
    kafka_topics: KafkaTopics, service: EchoService
) -> None:
    """A worker's client lacks most codecs, and 512 KiB of gzip are half a gigabyte of memory."""
    (requests,) = (topic for topic in TOPICS if topic.name == JOIN_REQUESTS)
    fleet = Fleet(kafka_topics, partitions=1)
    await fleet.create(requests=requests.configs)
    gzipped = AIOKafkaProducer(
        bootstrap_servers=kafka_topics.bootstrap_servers,
        compression_type="gzip",
        max_request_size=2**26,
        max_batch_size=2**26,
    )
    await gzipped.start()
    try:
        await gzipped.send_and_wait(fleet.names.requests, b"a" * 1000)
        with pytest.raises(MessageSizeTooLargeError):
            await gzipped.send_and_wait(fleet.names.requests, bytes(2**25))
        await gzipped.send_and_wait(fleet.names.requests, b"b" * 1000)
    finally:
        await gzipped.stop()
    async with fleet.worker(service):
        await until(lambda: len(service.judged) == 2, "both are judged")
    stored = await fleet.read(fleet.names.requests)
    assert [message.value for message in stored] == [b"a" * 1000, b"b" * 1000]
    assert not service.quarantined
