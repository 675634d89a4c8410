"""Operators decide on joins that wait: once, on what they saw, and with a record of it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.doorman import Doorman, asks
from tests.support.joins import Bench, join_bench
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import requests
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.requests import Seen
from watchword.handlers.service import JoinClock
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.approvals import list_requests as list_rows
from watchword.handlers.store.connection import Database
from watchword.handlers.store.keeper import expire_requests, open_connection, take_lease
from watchword.handlers.store.rebuild import check
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "the new rack")


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    clock = JoinClock(retry_after_seconds=7, approval_ttl=timedelta(hours=1))
    async with join_bench(database, attestors=[Doorman()], clock=clock) as bench:
        await bench.place("acme", "web", "berlin")
        await bench.place("acme", "db")
        yield bench


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


async def waiting(store: Database) -> list[Seen]:
    rows = await requests.list_requests(store, RequestFilter(state="pending"))
    return [Seen(row["id"], row["version"]) for row in rows]


async def events(bench: Bench) -> list[tuple[str, dict[str, Any]]]:
    rows = await bench.fetch("SELECT type, value FROM journal WHERE topic IS NOT NULL ORDER BY seq")
    return [(row["type"], json.loads(row["value"])) for row in rows]


async def differences(bench: Bench, store: Database) -> list[Any]:
    """Return what the journal does not explain of the requests; the bench plants the rest without events."""
    del bench
    found = await check(store)
    assert found.problems == []
    return [one for one in found.differences if one.table == "join_requests"]


async def test_an_approved_machine_joins_and_all_of_it_is_on_record(
    bench: Bench, store: Database
) -> None:
    """Who let it in, why, and what exactly they saw must be known years later."""
    machine = bench.machine()
    await bench.ask(
        machine.request(b"web/m1", attestor="doorman", claims=Claims(serial="\x1b[2JEVIL"))
    )
    (seen,) = await waiting(store)
    (shown,) = await requests.show_requests(store, [seen.id])

    assert shown["grants"]["pool"] == "web"
    assert shown["grants"]["unrestricted_kinds"] is True
    assert shown["grants"]["subjects"] == ["name m1"]
    assert shown["facts"] == {"name": "m1"}
    assert shown["unproven_claims"] == {"claimedMood": "good", "serial": "?[2JEVIL"}

    await requests.approve(store, ADA, [seen])
    assert await differences(bench, store) == []
    (approved,) = await requests.show_requests(store, [seen.id])
    [joined] = await bench.ask(asks(machine))

    assert joined["outcome"] == "joined"
    assert (approved["decided_by"], approved["comment"]) == ("ada", "the new rack")
    assert approved["audit"][0]["action"] == "join.approved"
    (waits, approval, _) = await events(bench)
    assert [waits[0], approval[0]] == ["join.waiting", "join.approved"]
    assert approval[1]["joinRequestId"] == waits[1]["joinRequestId"] == str(seen.id)
    assert approval[1]["csrSha256"] == shown["csr_sha256"].hex()
    assert (approval[1]["decidedBy"], approval[1]["comment"]) == ("ada", "the new rack")
    keys = await bench.fetch("SELECT key FROM journal WHERE type LIKE 'join.%'")
    assert {row["key"] for row in keys} == {str(seen.id).encode()}
    assert await bench.one("SELECT (state, version)::text FROM join_requests") == "(consumed,3)"
    assert await differences(bench, store) == []


async def test_of_twenty_operators_one_is_first(bench: Bench, store: Database) -> None:
    """Two of them may mean opposite things; only one word may stand."""
    await bench.ask(asks(bench.machine()))
    (seen,) = await waiting(store)

    async def decide(number: int) -> str:
        act = requests.approve if number % 2 else requests.reject
        try:
            await act(store, Actor(f"op-{number}", "a race"), [seen])
        except Conflict:
            return ""
        return f"op-{number}"

    winners = [who for who in await asyncio.gather(*map(decide, range(20))) if who]

    assert len(winners) == 1
    assert await bench.one("SELECT decided_by FROM join_requests") == winners[0]
    assert await bench.one("SELECT version FROM join_requests") == 2
    assert await bench.one("SELECT count(*) FROM audit_log") == 1
    assert [kind for kind, _ in await events(bench)].count("join.waiting") == 1
    assert len(await events(bench)) == 2
    assert await differences(bench, store) == []


async def test_several_are_decided_together_or_not_at_all(bench: Bench, store: Database) -> None:
    """A script that approves a rack must not stop in the middle of it."""
    await bench.ask(*[asks(bench.machine(), name=f"m{n}") for n in range(4)])
    seen = await waiting(store)
    await requests.reject(store, ADA, seen[:1])

    with pytest.raises(Conflict, match="is rejected already"):
        await requests.approve(store, ADA, seen)
    assert len(await waiting(store)) == 3

    rows = await requests.approve(store, ADA, seen[1:])
    assert [row["id"] for row in rows] == [one.id for one in seen[1:]]
    assert await waiting(store) == []


async def test_lists_in_opposite_order_do_not_lock_each_other_out(
    bench: Bench, store: Database
) -> None:
    """Two operators paste the same list, each sorted their own way: one is first, the other is told so."""
    await bench.ask(*[asks(bench.machine(), name=f"m{n}") for n in range(40)])
    seen = await waiting(store)
    results = await asyncio.gather(
        *[requests.approve(store, ADA, order) for order in (seen, seen[::-1]) for _ in range(4)],
        return_exceptions=True,
    )
    lost = [result for result in results if isinstance(result, Conflict)]

    assert len(lost) == 7
    assert await bench.one("SELECT count(*) FROM journal WHERE type = 'join.approved'") == 40


async def test_a_request_that_changed_since_it_was_seen_is_not_approved(
    bench: Bench, store: Database
) -> None:
    """The machine asks for another pool between the look and the word: the word is for the other grant."""
    machine = bench.machine()
    await bench.ask(asks(machine, "web"))
    (seen,) = await waiting(store)
    await bench.ask(asks(machine, "db"))

    with pytest.raises(Conflict, match="version 2, not 1"):
        await requests.approve(store, ADA, [seen])


async def test_an_approval_races_with_the_machines_other_wish(
    bench: Bench, store: Database
) -> None:
    """Whoever is first, what is admitted is only what was approved."""
    for round_number in range(6):
        machine, name = bench.machine(), f"race-{round_number}"
        await bench.ask(asks(machine, "web", name))
        (seen,) = await waiting(store)
        results = await asyncio.gather(
            requests.approve(store, ADA, [seen]),
            bench.ask(asks(machine, "db", name)),
            return_exceptions=True,
        )
        assert isinstance(results[0], list | Conflict)
        assert isinstance(results[1], list)
        [other] = results[1]
        [again] = await bench.ask(asks(machine, "db", name))

        # "db" was never agreed to, in either order; the old word is void once the machine changed its mind.
        assert (other["outcome"], again["outcome"]) == ("deferred", "deferred")
        assert (
            await bench.one("SELECT (state, pool)::text FROM join_requests WHERE id = $1", seen.id)
            == "(pending,db)"
        )
        await requests.reject(store, ADA, await waiting(store))
    assert await bench.one("SELECT count(*) FROM nodes") == 0
    assert await differences(bench, store) == []


async def test_an_approval_races_with_the_end_of_its_time(bench: Bench, store: Database) -> None:
    """The keeper and the operator must agree on which of them was first."""
    keeper = await open_connection(store)
    tenure = await take_lease(keeper, "k", seconds=60)
    assert tenure is not None
    for round_number in range(6):
        await bench.ask(asks(bench.machine(), name=f"late-{round_number}"))
        (seen,) = await waiting(store)
        # Due for the keeper's clock a little later, so that either may be first.
        await bench.fetch(
            "UPDATE join_requests SET expires_at = watchword.now() + interval '3 ms' WHERE state = 'pending'"
        )

        async def expire() -> int:
            count = 0
            for _ in range(4):
                count += await expire_requests(keeper, tenure, source="/test")
            return count

        approved, expired = await asyncio.gather(
            requests.approve(store, ADA, [seen]), expire(), return_exceptions=True
        )
        assert isinstance(approved, list | Conflict)
        assert isinstance(expired, int)
        await bench.fetch("SELECT pg_sleep(0.004)")  # until it is due on any clock
        expired += await expire_requests(keeper, tenure, source="/test")
        kinds = await bench.fetch(
            "SELECT type FROM journal WHERE key = $1 ORDER BY seq", str(seen.id).encode()
        )
        told = [row["type"] for row in kinds]
        wanted = ["join.approved"] if isinstance(approved, list) else []
        assert told == ["join.waiting", *wanted, "join.expired"]
        assert expired == 1
    await keeper.close()


async def test_an_approval_that_is_taken_back_admits_nobody(bench: Bench, store: Database) -> None:
    """The operator saw their mistake before the machine came again."""
    machine = bench.machine()
    await bench.ask(asks(machine))
    await requests.approve(store, ADA, await waiting(store))
    (row,) = await requests.list_requests(store, RequestFilter(state="approved"))
    await requests.reject(store, ADA, [Seen(row["id"], row["version"])])

    [answer] = await bench.ask(asks(machine))

    assert answer["outcome"] == "refused"
    with pytest.raises(Conflict, match="rejected already"):
        await requests.approve(store, ADA, [Seen(row["id"], row["version"] + 1)])


async def test_what_makes_no_sense_is_said(bench: Bench, store: Database) -> None:
    """A decision about nothing must not look like one about something."""
    await bench.ask(asks(bench.machine()))
    (seen,) = await waiting(store)
    with pytest.raises(NotFound):
        await requests.approve(store, ADA, [seen, Seen(uuid4(), 1)])
    with pytest.raises(BadArgument):
        await requests.approve(store, ADA, [])
    with pytest.raises(BadArgument):
        await requests.approve(store, ADA, [seen, seen])
    with pytest.raises(BadArgument, match="comment"):
        await requests.reject(store, Actor("ada"), [seen])
    with pytest.raises(BadArgument):
        await requests.list_requests(store, RequestFilter(state="lost"))
    assert await waiting(store) == [seen]


async def test_an_expired_request_is_not_approved(bench: Bench, store: Database) -> None:
    """Its machine may be gone; what comes next waits anew and is looked at anew."""
    await bench.ask(asks(bench.machine()))
    (seen,) = await waiting(store)
    await bench.fetch("UPDATE join_requests SET expires_at = watchword.now()")
    with pytest.raises(Conflict, match="expired"):
        await requests.approve(store, ADA, [seen])


async def test_pages_go_by_age_and_filters_compose(bench: Bench, store: Database) -> None:
    """A list of a thousand is read in pages, and none is passed over."""
    for number in range(5):
        await bench.ask(asks(bench.machine(), name=f"m{number}"))
    first = await requests.list_requests(store, RequestFilter(tenant="acme"), limit=3)
    rest = await requests.list_requests(
        store, RequestFilter(tenant="acme", after=UUID(str(first[-1]["id"])))
    )
    names = [row["facts"]["name"] for row in (*first, *rest)]
    assert names == ["m0", "m1", "m2", "m3", "m4"]
    assert await requests.list_requests(store, RequestFilter(attestor="tpm")) == []


async def test_a_machine_is_found_by_its_csr_however_many_have_waited(database: str) -> None:
    """At a storm's end each look would read all of it, and operators would be slower than machines ask."""
    connection = await Database(database, application_name="test").connect()
    try:
        await connection.execute(
            "INSERT INTO join_requests (attestor, subject, csr_sha256, id, state, snapshot, tenant, pool, role,"
            " request_id, requested_at, expires_at) SELECT 'doorman', sha256(n::text::bytea), sha256(n::text::bytea),"
            " gen_random_uuid(), 'consumed', '{}', 'acme', 'web', 'node', n::text, now(), now()"
            " FROM generate_series(1, 3000) AS n"
        )
        await connection.execute("ANALYZE join_requests")
        async with connection.transaction():
            # As often as makes PostgreSQL think of a plan for all arguments.
            for number in range(1, 13):
                digest = sha256(str(number).encode()).hexdigest()
                (found,) = await list_rows(connection, RequestFilter(csr=digest[:16]), 100)
                assert found["csr_sha256"].hex() == digest
            read = await connection.fetchval(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'join_requests'"
            )
    finally:
        await connection.close()
    assert read < 100
