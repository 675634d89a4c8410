"""What waits in memory."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka.structs import TopicPartition

from watchword.handlers.join.records import Incoming
from watchword.streams.worker.backlog import Backlog, Budget, Delivery
from watchword.streams.worker.tenures import Tenure, Tenures

PARTITION = TopicPartition("join.requests", 0)


@pytest.fixture
def budget() -> Budget:
    return Budget(100, 10_000, greatest_record=100)


@pytest.fixture
def backlog(budget: Budget) -> Backlog:
    return Backlog(budget)


@pytest.fixture
def tenure() -> Tenure:
    return Tenures().begin(PARTITION, 0)


def _delivery(tenure: Tenure, offset: int, size: int = 10) -> Delivery:
    return Delivery(Incoming(b"", "join.requests", 0, offset), None, tenure, size)


async def test_a_batch_is_what_has_queued_up_in_order(backlog: Backlog, tenure: Tenure) -> None:
    for offset in range(5):
        backlog.put([_delivery(tenure, offset)])
    assert [d.incoming.offset for d in await backlog.take(64, 1000)] == [0, 1, 2, 3, 4]


async def test_a_batch_keeps_to_both_bounds(backlog: Backlog, tenure: Tenure) -> None:
    for offset in range(5):
        backlog.put([_delivery(tenure, offset)])
    assert len(await backlog.take(2, 1000)) == 2
    assert len(await backlog.take(64, 25)) == 2
    assert len(await backlog.take(64, 25)) == 1


async def test_a_record_larger_than_a_batch_makes_one_of_its_own(
    backlog: Backlog, tenure: Tenure
) -> None:
    backlog.put([_delivery(tenure, 0, size=5000)])
    backlog.put([_delivery(tenure, 1)])
    assert len(await backlog.take(64, 1000)) == 1


async def test_a_lone_record_does_not_wait_for_company(backlog: Backlog, tenure: Tenure) -> None:
    taking = asyncio.create_task(backlog.take(64, 1000))
    await asyncio.sleep(0)
    backlog.put([_delivery(tenure, 0)])
    assert len(await asyncio.wait_for(taking, 1)) == 1


async def test_what_belongs_to_a_revoked_partition_is_not_begun(
    backlog: Backlog, budget: Budget, tenure: Tenure
) -> None:
    """Its new owner has it by now."""
    other = Tenures().begin(TopicPartition("join.requests", 1), 0)
    for delivery in (_delivery(tenure, 0), _delivery(other, 0), _delivery(tenure, 1)):
        budget.take(delivery.size)
        backlog.put([delivery])
    tenure.is_over = True

    (taken,) = await backlog.take(64, 1000)

    assert taken.tenure is other
    other.prefix.deliver(0)
    backlog.finish(taken)
    assert budget.room == 100


async def test_the_room_counts_records_and_reckons_with_large_ones(budget: Budget) -> None:
    assert budget.room == 100
    budget.take(9_500)
    assert budget.room == 5
    budget.take(900)
    assert budget.room == 0
    budget.give_back(9_500)
    assert budget.room == 91


async def test_whoever_waits_for_room_is_woken(budget: Budget) -> None:
    waiting = asyncio.create_task(budget.freed(within_s=10))
    await asyncio.sleep(0)
    budget.give_back(0)
    with suppress(TimeoutError):
        await asyncio.wait_for(waiting, 1)
    assert waiting.done()
    assert not waiting.cancelled()
