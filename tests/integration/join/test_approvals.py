"""A join that waits for an operator is admitted once they agreed, to exactly what they saw."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from tests.support.doorman import Doorman, asks
from tests.support.joins import Bench, join_bench
from watchword.handlers.attestor import Subject
from watchword.handlers.service import JoinClock

pytestmark = pytest.mark.postgres


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service with the doorman."""
    clock = JoinClock(retry_after_seconds=7, approval_ttl=timedelta(hours=1))
    async with join_bench(database, attestors=[Doorman()], clock=clock) as bench:
        await bench.place("acme", "web")
        await bench.place("acme", "db")
        yield bench


async def _approve(bench: Bench) -> None:
    await bench.fetch(
        "UPDATE join_requests SET state = 'approved', version = version + 1, decided_at = now(), decided_by = 'op'"
        " WHERE state = 'pending'"
    )


async def test_machine_waits_and_joins_once_an_operator_agreed(bench: Bench) -> None:
    """The retry is fresh evidence for the same CSR; it consumes the approval in its own transaction."""
    machine = bench.machine()
    [waits] = await bench.ask(asks(machine))
    assert waits["outcome"] == "deferred"
    assert waits["deferred"] == {"type": "approval", "retryAfterSeconds": 7}
    [still] = await bench.ask(asks(machine))
    assert still["outcome"] == "deferred"
    assert await bench.one("SELECT count(*) FROM journal WHERE type = 'join.waiting'") == 1

    await _approve(bench)
    [joined] = await bench.ask(asks(machine))

    assert joined["outcome"] == "joined"
    assert await bench.one("SELECT state FROM join_requests") == "consumed"
    assert await bench.one("SELECT count(*) FROM nodes") == 1
    assert await bench.one("SELECT count(*) FROM refusals") == 0


async def test_same_bytes_wait_until_their_time(bench: Bench) -> None:
    """A redelivered deferral is answered again, and judged anew only when it has expired."""
    request = asks(bench.machine())
    await bench.ask(request)
    await _approve(bench)
    [again] = await bench.ask(request)
    assert again["outcome"] == "deferred"

    await bench.fetch("UPDATE inbox SET not_after = now()")
    [anew] = await bench.ask(request)
    assert anew["outcome"] == "joined"


async def test_approval_of_another_grant_does_not_count(bench: Bench) -> None:
    """What an operator saw is what is admitted: another pool waits anew, and the old word is void."""
    machine = bench.machine()
    await bench.ask(asks(machine, "web"))
    await _approve(bench)
    [other] = await bench.ask(asks(machine, "db"))

    assert other["outcome"] == "deferred"
    rows = await bench.fetch("SELECT state, pool, version FROM join_requests")
    assert [tuple(row) for row in rows] == [("pending", "db", 3)]
    assert await bench.one("SELECT count(*) FROM journal WHERE type = 'join.waiting'") == 2


async def test_approval_belongs_to_the_key(bench: Bench) -> None:
    """Whoever claims the same name with another key makes a request of their own and disturbs nobody's."""
    machine, thief = bench.machine(), bench.machine()
    await bench.ask(asks(machine))
    await _approve(bench)
    [stolen] = await bench.ask(asks(thief))
    [joined] = await bench.ask(asks(machine))

    assert [stolen["outcome"], joined["outcome"]] == ["deferred", "joined"]


@pytest.mark.parametrize("state", ["rejected", "expired"])
async def test_decision_against_it(bench: Bench, state: str) -> None:
    """A rejection is a refusal with its reason inside; an expired request waits anew."""
    machine = bench.machine()
    await bench.ask(asks(machine))
    await bench.fetch("UPDATE join_requests SET state = $1", state)
    [answer] = await bench.ask(asks(machine))

    if state == "rejected":
        assert answer["outcome"] == "refused"
        assert (
            await bench.one("SELECT attestor || ':' || reason FROM refusals") == "doorman:rejected"
        )
    else:
        assert answer["outcome"] == "deferred"
        assert await bench.one("SELECT state FROM join_requests") == "pending"


async def test_twenty_retries_consume_one_approval(bench: Bench) -> None:
    """Twenty copies of the retry race over four connections: one node, one admission."""
    machine = bench.machine()
    await bench.ask(asks(machine))
    await _approve(bench)
    answers = await asyncio.gather(*[bench.ask(asks(machine)) for _ in range(20)])

    assert {answer["outcome"] for [answer] in answers} == {"joined"}
    assert len({answer["joined"]["nodeId"] for [answer] in answers}) == 1
    assert await bench.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1


async def test_waiting_joins_are_capped_per_tenant(database: str) -> None:
    """Whoever can ask could otherwise fill an operator's list without end; the cap is exact in one batch too."""
    async with join_bench(database, attestors=[Doorman()], waiting_per_tenant=3) as bench:
        await bench.place("acme", "web")
        answers = await bench.ask(*[asks(bench.machine(), name=f"m{n}") for n in range(5)])

        assert [a["outcome"] for a in answers] == ["deferred"] * 3 + ["refused"] * 2
        assert await bench.one("SELECT count(*) FROM join_requests WHERE state = 'pending'") == 3
        assert (
            await bench.one("SELECT count(*) FROM refusals WHERE reason = 'too-many-waiting'") == 2
        )


async def test_ban_ends_the_waiting(bench: Bench) -> None:
    """A banned subject is refused before an operator is asked."""
    subject = Subject("name", "m1")
    await bench.fetch(
        "INSERT INTO bans (subject, kind, value, banned_at, who, why) VALUES ($1, 'name', 'm1', now(), 'op', 'stolen')",
        subject.digest,
    )
    [answer] = await bench.ask(asks(bench.machine()))

    assert answer["outcome"] == "refused"
    assert await bench.one("SELECT reason FROM refusals") == "banned"
    assert await bench.one("SELECT count(*) FROM join_requests") == 0
