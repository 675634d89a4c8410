"""The bound on published refusals: reached, never passed, and given back by what is rolled back."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest

from watchword.handlers.rows import Bucket
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import EXEMPT, Learned, SlotLimits, Slots

pytestmark = pytest.mark.postgres

LIMITS = SlotLimits(per_reason=8, per_attestor=10, window_s=3600)
HOT: Bucket = ("acme", "tpm", "bad-quote")
OTHER: Bucket = ("acme", "tpm", "not-enrolled")


@pytest.fixture
def server(database: str) -> Database:
    """Give the database with our time limits."""
    return Database(database, application_name="slots")


@pytest.fixture
async def connection(server: Database) -> AsyncGenerator[Connection]:
    """Give a connection to it."""
    made = await server.connect()
    yield made
    await made.close()


async def claim(
    slots: Slots, connection: Connection, need: Mapping[Bucket, int], *, commit: bool = True
) -> Mapping[Bucket, int]:
    """Claim in a transaction of its own."""
    learned = Learned()
    transaction = connection.transaction()
    await transaction.start()
    granted = await slots.claim(connection, need, learned)
    if commit:
        await transaction.commit()
        slots.remember(learned)
    else:
        await transaction.rollback()
    return granted


async def test_bucket_grants_up_to_its_bound(connection: Connection, server: Database) -> None:
    slots = Slots(LIMITS, server.connect)
    assert await claim(slots, connection, {HOT: 3}) == {HOT: 3}
    assert await claim(slots, connection, {HOT: 100}) == {HOT: 5}
    assert await claim(slots, connection, {HOT: 1}) == {}
    # Also for a process that remembers nothing.
    assert await claim(Slots(LIMITS, server.connect), connection, {HOT: 1}) == {}


async def test_noise_of_one_reason_hides_no_other(connection: Connection, server: Database) -> None:
    """The first five of each reason are outside the attestor's common bound."""
    slots = Slots(SlotLimits(per_reason=50, per_attestor=10, window_s=3600), server.connect)
    assert await claim(slots, connection, {HOT: 50}) == {HOT: EXEMPT + 10}
    assert await claim(slots, connection, {OTHER: 50}) == {OTHER: EXEMPT}
    # Another tenant's stream and another attestor have bounds of their own.
    globex: Bucket = ("globex", "tpm", "bad-quote")
    assert await claim(slots, connection, {globex: 50}) == {globex: EXEMPT + 10}


async def test_reasons_of_one_batch_share_the_common_bound(
    connection: Connection, server: Database
) -> None:
    slots = Slots(SlotLimits(per_reason=50, per_attestor=10, window_s=3600), server.connect)
    granted = await claim(slots, connection, {HOT: 50, OTHER: 50})
    assert sum(granted.values()) == 2 * EXEMPT + 10
    assert min(granted.values()) >= EXEMPT + 4


async def test_rolled_back_claims_are_given_back(connection: Connection, server: Database) -> None:
    """What was not recorded was not published: the first refusal after it must not go missing."""
    slots = Slots(LIMITS, server.connect)
    assert await claim(slots, connection, {HOT: 100}, commit=False) == {HOT: 8}
    assert await claim(slots, connection, {HOT: 100}) == {HOT: 8}


async def test_savepoint_gives_back_too(connection: Connection, server: Database) -> None:
    """The lane settles twice in one transaction; its first claim is undone."""
    slots = Slots(LIMITS, server.connect)
    async with connection.transaction():
        await connection.execute("SAVEPOINT lane")
        assert await slots.claim(connection, {HOT: 1}, Learned()) == {HOT: 1}
        await connection.execute("ROLLBACK TO SAVEPOINT lane")
        assert await slots.claim(connection, {HOT: 1}, Learned()) == {HOT: 1}


async def test_rows_that_were_taken_away_are_made_again(
    connection: Connection, server: Database
) -> None:
    """Somebody may prune what is idle; the process must not stay silent about that bucket for ever."""
    slots = Slots(LIMITS, server.connect)
    await claim(slots, connection, {HOT: 1})
    await connection.execute("DELETE FROM refusal_slots WHERE reason <> '*'")
    await claim(slots, connection, {HOT: 1})
    assert await claim(slots, connection, {HOT: 1}) == {HOT: 1}


async def test_window_slides(connection: Connection, server: Database) -> None:
    """A slot is free again when its own claim has left the window, not when a period ends."""
    now = 0.0
    slots = Slots(
        SlotLimits(per_reason=3, per_attestor=10, window_s=60),
        server.connect,
        monotonic=lambda: now,
    )
    assert await claim(slots, connection, {HOT: 3}) == {HOT: 3}
    await connection.execute(
        "UPDATE refusal_slots SET claimed_at = claimed_at - interval '59 seconds' WHERE slot = 1"
    )
    assert await claim(slots, connection, {HOT: 3}) == {}
    await connection.execute(
        "UPDATE refusal_slots SET claimed_at = claimed_at - interval '2 seconds' WHERE slot = 1"
    )
    now = 5.0
    assert await claim(slots, connection, {HOT: 3}) == {HOT: 1}


async def test_full_bucket_is_not_asked_for_again(connection: Connection, server: Database) -> None:
    """In a storm the query itself would be the load."""
    slots = Slots(LIMITS, server.connect)
    await claim(slots, connection, {HOT: 100})
    assert await claim(slots, connection, {HOT: 1}) == {}
    await connection.execute("DROP TABLE refusal_slots")
    assert await claim(slots, connection, {HOT: 1}) == {}


async def test_nobody_waits_for_the_batch_that_meets_a_reason_first(server: Database) -> None:
    """In a new deployment every reason is new, to all workers at once: each would wait for another's whole batch."""
    stores = [PostgresJoinStore(server, LIMITS) for _ in range(2)]
    first, second = [await store.session() for store in stores]
    try:
        await first.begin()
        await second.begin()
        assert await first.claim_slots({HOT: 1}) == {HOT: 1}
        async with asyncio.timeout(1):
            assert await second.claim_slots({HOT: 1}) == {HOT: 1}
    finally:
        for store, session in zip(stores, (first, second), strict=True):
            await session.rollback()
            await store.release(session, broken=False)
            await store.close()


async def test_a_new_bucket_is_there_although_its_batch_was_rolled_back(
    server: Database, connection: Connection
) -> None:
    """What is remembered as made has to be there: else a reason would never be told again."""
    store = PostgresJoinStore(server, LIMITS)
    session = await store.session()
    for _ in range(2):
        await session.begin()
        assert await session.claim_slots({HOT: LIMITS.per_reason}) == {HOT: LIMITS.per_reason}
        await session.rollback()
    await store.release(session, broken=False)
    await store.close()

    assert await connection.fetchval("SELECT count(*) FROM refusal_slots WHERE reason <> '*'") == 8


async def test_nobody_waits_and_nobody_passes_the_bound(server: Database) -> None:
    """Twenty transactions at once: those that find the rows locked go without."""
    connections = [await server.connect() for _ in range(20)]
    try:
        slots = Slots(LIMITS, server.connect)
        await claim(slots, connections[0], {HOT: 1})
        granted = await asyncio.gather(
            *[claim(Slots(LIMITS, server.connect), one, {HOT: 2}) for one in connections]
        )
        assert sum(sum(one.values()) for one in granted) <= 7
        # What was locked then is free for whoever comes next.
        assert (
            sum((await claim(Slots(LIMITS, server.connect), connections[0], {HOT: 8})).values())
            + sum(sum(one.values()) for one in granted)
            == 7
        )
    finally:
        for one in connections:
            await one.close()


async def test_a_lowered_limit_holds_at_once(connection: Connection, server: Database) -> None:
    """Rows from when the limit was greater must not be claimed."""
    await claim(Slots(LIMITS, server.connect), connection, {HOT: 1})
    await connection.execute("UPDATE refusal_slots SET claimed_at = '-infinity'")
    lowered = Slots(SlotLimits(per_reason=2, per_attestor=2, window_s=3600), server.connect)
    assert await claim(lowered, connection, {HOT: 100}) == {HOT: 2}
    assert await claim(lowered, connection, {HOT: 1}) == {}


async def test_a_full_bucket_of_few_slots_is_closed(
    connection: Connection, server: Database
) -> None:
    """A limit below the exempt slots has no share in the common bucket, which stays free for ever."""
    slots = Slots(SlotLimits(per_reason=2, per_attestor=10, window_s=3600), server.connect)
    assert await claim(slots, connection, {HOT: 3}) == {HOT: 2}
    assert await claim(slots, connection, {HOT: 1}) == {}
    await connection.execute("DROP TABLE refusal_slots")
    assert await claim(slots, connection, {HOT: 1}) == {}
