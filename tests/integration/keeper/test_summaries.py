"""What the bound held back is told, exactly."""

import asyncio
import json
import random
import time
from datetime import timedelta

import pytest

from tests.support.keepers import Options, told
from tests.support.refusals import refuse
from watchword.handlers.journal import refusal_key, shard_of
from watchword.handlers.store import keeper as store
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.summaries import SummaryRules, summarise
from watchword.handlers.windows import Limit
from watchword.streams.keeper.keeper import Keeper

pytestmark = pytest.mark.postgres


async def _later(connection: Connection, seconds: int) -> None:
    """Let a period go by: move the open windows back."""
    await connection.execute(
        "UPDATE refusal_windows SET period_start = period_start - make_interval(secs => $1)",
        seconds,
    )


async def test_a_bucket_is_told_at_its_start_while_it_goes_on_and_at_its_end(
    connection: Connection, options: Options
) -> None:
    """A security team learns of a storm when it begins, how large it was, and that it is over."""
    keeper = Keeper(options())
    await refuse(connection, 100, published=60, distinct_csrs=10)
    await keeper.step()
    await refuse(connection, 50, distinct_csrs=7)
    await keeper.step()
    assert [s["phase"] for s in await told(connection)] == ["start"]

    await _later(connection, 61)
    await refuse(connection, 1, distinct_csrs=7)
    await keeper.step()
    await _later(connection, 61)
    await refuse(connection, 2, published=2)
    await keeper.step()
    await _later(connection, 61)
    await keeper.step()
    await keeper.close(is_idle=True)

    start, running, end = await told(connection)
    assert (start["recorded"], start["published"], start["suppressed"]) == (100, 60, 40)
    assert (start["distinctCsrs"], start["distinctClaimedHardwareKeys"]) == (10, 0)
    assert (running["phase"], running["recorded"], running["suppressed"]) == ("running", 51, 51)
    assert running["distinctCsrs"] == 7
    assert (end["phase"], end["recorded"], end["suppressed"]) == ("end", 2, 0)
    assert len(start["requestIds"]) == 5
    assert (start["limit"], start["limitSeconds"]) == (60, 60)
    assert await connection.fetchval("SELECT count(*) FROM refusal_windows") == 0


async def test_what_was_published_in_full_makes_no_summary(
    connection: Connection, options: Options
) -> None:
    """Ordinary refusals would otherwise be told twice."""
    keeper = Keeper(options())
    await refuse(connection, 10, published=10)
    await keeper.step()
    await keeper.close(is_idle=True)
    assert await told(connection) == []


async def test_a_summary_is_on_the_stream_and_key_of_its_details(
    connection: Connection, options: Options
) -> None:
    """A tenant's stream gets its own counts only, in order with its details."""
    keeper = Keeper(options())
    await refuse(connection, 5, tenant="acme", reason="expired")
    await refuse(connection, 7, tenant="root", reason="expired")
    await keeper.step()
    await keeper.close(is_idle=True)
    rows = await connection.fetch(
        "SELECT topic, key, shard, class, headers, value FROM journal"
        " WHERE type = 'security.join.refused.window' ORDER BY seq"
    )
    assert {
        json.loads(row["value"])["tenant"]: json.loads(row["value"])["suppressed"] for row in rows
    } == {
        "acme": 5,
        "root": 7,
    }
    for row in rows:
        tenant = json.loads(row["value"])["tenant"]
        assert row["key"] == refusal_key(tenant, "join-token", "expired")
        assert row["shard"] == shard_of(row["key"])
        assert (row["topic"], row["class"]) == ("security.join.refused", "refusal")
        assert json.loads(row["headers"])["ce_tenantid"] == tenant


class _Undone(Exception):
    """A worker's batch fails."""


async def _worker(database: Database, seed: int, until: float) -> None:
    chance = random.Random(seed)  # noqa: S311 - not a secret
    connection = await database.connect()
    while time.monotonic() < until:
        count = chance.randrange(1, 20)
        try:
            async with connection.transaction():
                for reason in chance.sample(("used-up", "expired", "revoked"), 2):
                    await refuse(connection, count, published=chance.randrange(3), reason=reason)
                if seed == 0:
                    await connection.execute("SELECT pg_sleep(0.2)")
                _maybe_fail(chance)
        except _Undone:
            pass
        await asyncio.sleep(0.002)
    await connection.close()


def _maybe_fail(chance: random.Random) -> None:
    if chance.random() < 0.2:
        raise _Undone


async def test_counts_are_exact_with_rollbacks_late_commits_and_keepers_that_die(
    opened: Database, connection: Connection, options: Options
) -> None:
    """Published plus summarised is recorded, whatever happened: the invariant of the whole bound."""
    async with asyncio.TaskGroup() as workers:
        until = time.monotonic() + 3
        for seed in range(4):
            workers.create_task(_worker(opened, seed, until))
        while time.monotonic() < until:
            keeper = Keeper(options(lease_s=0.2, period_s=0.3))
            for _ in range(random.randrange(1, 8)):  # noqa: S311 - not a secret
                await keeper.step()
                await asyncio.sleep(0.02)
            dying = asyncio.create_task(keeper.step())
            await asyncio.sleep(random.random() * 0.01)  # noqa: S311 - not a secret
            dying.cancel()
            await asyncio.wait({dying})
            keeper.forget()  # no release: the lease expires
    keeper = Keeper(options(lease_s=0.2, period_s=0.05))
    await asyncio.sleep(0.3)
    while await connection.fetchval("SELECT count(*) FROM refusal_windows"):
        await keeper.step()
        await asyncio.sleep(0.06)
    await keeper.close(is_idle=True)

    rows = await connection.fetch(
        "SELECT reason, count(*) AS n, count(*) FILTER (WHERE NOT published) AS held FROM refusals GROUP BY reason"
    )
    assert len(rows) == 3
    summaries = await told(connection)
    for row in rows:
        mine = [s for s in summaries if s["reason"] == row["reason"]]
        assert sum(s["suppressed"] for s in mine) == row["held"]
        assert all(s["recorded"] == s["published"] + s["suppressed"] for s in mine)
        phases = [s["phase"] for s in mine]
        assert phases[0] == "start"
        assert phases[-1] == "end"


async def test_a_long_outage_of_the_keeper_is_counted_in_pieces(
    opened: Database, connection: Connection
) -> None:
    """A million rows in one transaction would run into its time limit, again and again."""
    slow = await opened.connect()
    transaction = slow.transaction()
    await transaction.start()
    await refuse(slow, 3, reason="slow")
    for _ in range(10):
        await refuse(connection, 10)
    rules = SummaryRules(period=_period(), limit=_limit(), source="/test", at_once=25)
    mine = await store.open_connection(opened)
    tenure = await store.take_lease(mine, "me", seconds=30)
    assert tenure is not None
    pieces = 0
    while (await summarise(mine, tenure, rules, None)).has_more:
        pieces += 1
    await transaction.commit()
    await slow.close()
    await summarise(mine, tenure, rules, None)
    await connection.execute("UPDATE refusal_windows SET period_start = 'epoch'")
    await summarise(mine, tenure, rules, None)
    await mine.close()
    assert pieces >= 3
    summaries = await told(connection)
    assert sum(s["suppressed"] for s in summaries if s["reason"] == "used-up") == 100
    assert sum(s["suppressed"] for s in summaries if s["reason"] == "slow") == 3


def _period() -> timedelta:
    return timedelta(seconds=60)


def _limit() -> Limit:
    return Limit(60, 60)


async def test_a_keeper_without_the_lease_tells_nothing(
    opened: Database, connection: Connection
) -> None:
    """A keeper that was paused past its lease must not count what another has counted."""
    rules = SummaryRules(period=_period(), limit=_limit(), source="/test")
    mine = await store.open_connection(opened)
    tenure = await store.take_lease(mine, "zombie", seconds=30)
    assert tenure is not None
    await connection.execute("UPDATE leases SET expires_at = '-infinity'")
    assert await store.take_lease(mine, "other", seconds=30) is not None
    await refuse(connection, 5)
    with pytest.raises(store.LeaseLost):
        await summarise(mine, tenure, rules, None)
    with pytest.raises(store.LeaseLost):
        await store.prune_inbox(mine, tenure, older_than_s=0)
    await mine.close()
    assert await told(connection) == []
