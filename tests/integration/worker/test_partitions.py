"""Partitions come and go, under load and while Kafka is away."""

import asyncio
import contextlib

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.support.echo_service import EchoService
from tests.support.kafka import KafkaTopics
from tests.support.waiting import until, until_true
from tests.support.workers import Fleet, Worker
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.worker import metrics
from watchword.streams.worker.options import WorkerLimits

pytestmark = pytest.mark.kafka

_PARTITIONS = 6


@pytest.fixture
async def fleet(kafka_topics: KafkaTopics) -> Fleet:
    made = Fleet(kafka_topics, _PARTITIONS)
    await made.create()
    return made


async def _keep_sending(fleet: Fleet, enough: asyncio.Event) -> int:
    """Send requests round the partitions until it is enough; return how many."""
    sent = 0
    async with fleet.producer() as producer:
        while not enough.is_set():
            wave = [
                await producer.send(
                    fleet.names.requests, b"%d" % (sent + n), partition=n % _PARTITIONS
                )
                for n in range(_PARTITIONS * 4)
            ]
            await asyncio.gather(*wave)
            sent += len(wave)
            await asyncio.sleep(0.01)
    return sent


async def test_rebalances_under_load_lose_nothing(fleet: Fleet) -> None:
    """Each worker that comes or goes takes all partitions from all workers for a moment."""
    services = [EchoService() for _ in range(3)]
    enough = asyncio.Event()

    async def has_judged(number: int, more: int = 100) -> None:
        enough = len(services[number].judged) + more
        await until(lambda: len(services[number].judged) > enough, "it works", within_s=30)

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(fleet.worker(services[0], "w0"))
        sending = asyncio.create_task(_keep_sending(fleet, enough))
        await has_judged(0)
        for number in (1, 2):
            await stack.enter_async_context(fleet.worker(services[number], f"w{number}"))
            await has_judged(number)
        for number in (1, 2):
            # A restart under the same name, within the session.
            async with fleet.worker(services[number], f"v{number}"):
                await has_judged(number)
        enough.set()
        sent = await sending
        expected = {(n % _PARTITIONS, n // _PARTITIONS) for n in range(sent)}

        def judged() -> set[tuple[int, int]]:
            return {where for service in services for where in service.times_judged}

        await until(lambda: judged() == expected, "all are judged", within_s=30)
    assert not fleet.ended
    assert {int(value) for value in await fleet.answers()} == set(range(sent))
    assert await fleet.committed() == dict.fromkeys(range(_PARTITIONS), sent // _PARTITIONS)


async def test_a_batch_in_flight_at_a_revocation_is_committed_before_the_partition_moves(
    fleet: Fleet,
) -> None:
    """So an ordinary rebalance judges nothing twice."""
    first, second = EchoService(), EchoService()
    held = [first.hold(partition, 0) for partition in range(_PARTITIONS)]
    async with fleet.worker(first, "w0") as old:
        for partition in range(_PARTITIONS):
            await fleet.send(b"a", partition=partition)
        await until(lambda: first.running == 2, "two batches are in flight")
        async with fleet.worker(second, "w1") as new:
            await until(
                lambda: old.health.problems().get("consumer") == "waiting for the group",
                "the partitions are revoked",
            )
            for event in held:
                event.set()
            await new.is_ready()
            await old.is_ready()
            for partition in range(_PARTITIONS):
                await fleet.send(b"b", partition=partition)
            await until(
                lambda: len(first.judged) + len(second.judged) >= 2 * _PARTITIONS, "all are judged"
            )
    assert second.judged
    assert set((first.times_judged + second.times_judged).values()) == {1}
    assert await fleet.committed() == dict.fromkeys(range(_PARTITIONS), 2)


async def test_a_batch_that_outlasts_the_revocation_is_judged_again_elsewhere(
    kafka_topics: KafkaTopics,
) -> None:
    """The inbox answers the second time; what must not happen is a commit of what was not done."""
    fleet = Fleet(kafka_topics, 1, WorkerLimits(commit_every_s=0.05, revoke_s=0.1))
    await fleet.create()
    stuck, other = EchoService(), EchoService()
    held = stuck.hold(0, 0)
    async with fleet.worker(stuck, "w0"):
        await fleet.send(b"a")
        await until(lambda: stuck.running == 1, "the batch is in flight")
        async with fleet.worker(other, "w1"), fleet.worker(other, "w2"):
            await until(
                lambda: len(other.judged) + len(stuck.judged) > 1, "it is judged again", within_s=30
            )
            held.set()
            await until(lambda: not stuck.running and not other.running, "both are done")
    assert (await fleet.committed())[0] == 1
    assert not fleet.ended


async def test_requests_that_retention_removed_are_counted_and_passed_over(fleet: Fleet) -> None:
    """After a long outage the committed offset lies below the log's start."""
    service = EchoService()
    async with fleet.worker(service):
        await fleet.send(b"a")
        await until(lambda: len(service.judged) == 1, "the first is judged")
    await fleet.send(b"lost", b"lost", b"kept")
    await _remove_below(fleet, 3)
    lost_before = metrics.LOST._value.get()
    async with fleet.worker(service) as worker:
        await until(lambda: len(service.judged) == 2, "the rest is judged")
        await worker.is_ready()
    assert service.judged[-1].value == b"kept"
    assert metrics.LOST._value.get() - lost_before == 2
    assert (await fleet.committed())[0] == 4
    assert not fleet.ended


async def test_retention_that_passes_a_running_worker_does_not_end_it(fleet: Fleet) -> None:
    service = EchoService()
    problems = ["not now"]
    gate = lambda: problems[0] if problems else None  # noqa: E731
    async with fleet.worker(service, gate=gate) as worker:
        await until(lambda: set(worker.health.problems()) == {"service"}, "it has joined")
        await fleet.send(b"lost", b"lost", b"kept")
        await _remove_below(fleet, 2)
        problems.clear()
        await until(lambda: len(service.judged) == 1, "the rest is judged", within_s=30)
    assert service.judged[0].value == b"kept"
    assert (await fleet.committed())[0] == 3
    assert not fleet.ended


async def _remove_below(fleet: Fleet, offset: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=fleet.topics.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(fleet.names.requests, 0): RecordsToDelete(before_offset=offset)}
        )
    finally:
        await admin.close()


async def test_a_worker_waits_for_kafka_says_so_and_goes_on(
    fleet: Fleet, kafka_broker: EmbeddedKafka
) -> None:
    service = EchoService()
    async with fleet.worker(service) as worker:
        await worker.is_ready()
        kafka_broker.pause()
        try:
            await until(lambda: bool(worker.health.problems()), "it says so", within_s=60)
            assert not worker.app.crashed
        finally:
            kafka_broker.resume()
        await _goes_on(fleet, service, worker)


async def test_a_worker_outlives_a_restart_of_kafka(
    fleet: Fleet, kafka_broker: EmbeddedKafka
) -> None:
    service = EchoService()
    async with fleet.worker(service) as worker:
        await worker.is_ready()
        await kafka_broker.kill()
        await until(lambda: bool(worker.health.problems()), "it says so", within_s=60)
        await kafka_broker.start()
        await _goes_on(fleet, service, worker)


async def _goes_on(fleet: Fleet, service: EchoService, worker: Worker) -> None:
    await fleet.send(b"a")
    await until(lambda: len(service.judged) == 1, "it goes on", within_s=60)
    await worker.is_ready()
    assert not worker.app.crashed

    async def is_committed() -> bool:
        # A reader that asks while the broker is still coming up knows of none, and says so by an assertion.
        with contextlib.suppress(AssertionError):
            return (await fleet.committed())[0] == 1
        return False

    # A session that ran out meanwhile drops the commit; then the record comes again, and is answered again.
    await until_true(is_committed, "it is committed", within_s=60)
    await worker.app.stop()
    assert set(await fleet.answers()) == {b"a"}
    assert not fleet.ended


async def test_a_topic_that_is_made_later_and_a_partition_that_is_added_are_found(
    kafka_topics: KafkaTopics,
) -> None:
    """The order in which a deployment starts is nobody's promise."""
    fleet = Fleet(kafka_topics, 1, WorkerLimits(commit_every_s=0.05, metadata_age_s=0.5))
    service = EchoService()
    async with fleet.worker(service) as worker:
        await until(
            lambda: "is not known" in worker.health.problems().get("consumer", ""),
            "it names the missing topic",
        )
        await fleet.create()
        await worker.is_ready()
        await fleet.send(b"a")
        await until(lambda: len(service.judged) == 1, "the topic is read")

        await _add_partition(fleet)
        await fleet.send(b"b", partition=1)
        await until(lambda: len(service.judged) == 2, "the partition is read", within_s=30)
    fleet.partitions = 2
    assert await fleet.committed() == {0: 1, 1: 1}


async def _add_partition(fleet: Fleet) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=fleet.topics.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_partitions({fleet.names.requests: NewPartitions(total_count=2)})
    finally:
        await admin.close()


async def test_a_partition_added_after_a_restart_within_the_session_is_read(
    kafka_topics: KafkaTopics,
) -> None:
    """A worker that comes back under its name leads the group again, and is not told so."""
    fleet = Fleet(kafka_topics, 1)
    await fleet.create()
    for value in (b"a", b"b"):
        service = EchoService()
        async with fleet.worker(service, "w0"):
            await fleet.send(value)
            await until(
                lambda service=service: len(service.judged) == 1,  # type: ignore[misc] # bound now
                "it is read",
                within_s=60,
            )
            if value == b"b":
                await _add_partition(fleet)
                await fleet.send(b"c", partition=1)
                await until(
                    lambda service=service: len(service.judged) == 2,  # type: ignore[misc] # bound now
                    "the partition is read",
                    within_s=60,
                )
    fleet.partitions = 2
    assert await fleet.committed() == {0: 2, 1: 1}
