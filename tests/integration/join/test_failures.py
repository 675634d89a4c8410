"""Rows that cannot be written, a bug, a signer that is away, a worker that is cancelled: every request gets its one outcome."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.effects import one_effect, scripted
from tests.support.joins import Bench, code, join_bench
from tests.support.scenarios import Order
from tests.support.waiting import until
from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.errors import SignerUnavailable
from watchword.handlers.join.outcomes import Outcomes

pytestmark = pytest.mark.postgres


# Data that PostgreSQL refuses


async def test_halving_finds_the_bad_ones_and_no_others(database: str) -> None:
    """One row that cannot be written must cost its own join, not the sixty around it."""
    order = Order()
    async with join_bench(database, attestors=[Scripted()], observer=order) as bench:
        token = await bench.token(uses=100)
        bad = {3, 4, 17}
        scripts = {
            3: Script(tenant="nobodys"),
            4: Script(pool="nowhere"),
            17: Script(site="nowhere"),
        }
        requests = [
            scripted(bench, scripts[n]) if n in bad else bench.machine().request(token.payload)
            for n in range(24)
        ]
        answers = await bench.ask(*requests)

        told = [code(answer) for answer in answers]
        assert [n for n, outcome in enumerate(told) if outcome == "UNAVAILABLE"] == sorted(bad)
        assert told.count("joined") == 21
        assert order.halvings > 0
        await one_effect(bench, 21)
        assert await bench.one("SELECT count(*) FROM inbox") == 21
        assert await bench.one("SELECT count(*) FROM refusals") == 0

        # Nothing keeps it out once the place exists.
        await bench.place("nobodys", "web")
        [answer] = await bench.ask(requests[3])
        assert code(answer) == "joined"


async def test_bug_of_the_core_costs_one_request(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody thought of must neither stop the partition nor admit."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=9)
        broken = bench.machine().request(token.payload[:-1] + b"\0")
        real = Outcomes.refusals

        def buggy(self: Outcomes, candidates: Sequence[Any]) -> Any:  # noqa: ANN401 - as the real one
            if any(c.incoming.value == broken for c in candidates):
                message = "a bug"
                raise LookupError(message)
            return real(self, candidates)

        monkeypatch.setattr(Outcomes, "refusals", buggy)
        answers = await bench.ask(
            *[bench.machine().request(token.payload) for _ in range(4)], broken
        )
        assert [code(answer) for answer in answers] == ["joined"] * 4 + ["UNAVAILABLE"]
        await one_effect(bench, 4)


# The signer is away


class Away:
    """A signer that is away for its first calls."""

    def __init__(self, inner: Signer, *, issues: int = 0, chains: int = 0) -> None:
        """Fail so many calls of each kind."""
        self._inner = inner
        self.issues = issues
        self.chains = chains

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """See `Signer`."""
        if self.issues:
            self.issues -= 1
            raise SignerUnavailable
        return await self._inner.issue(orders)

    async def chain(self) -> tuple[bytes, ...]:
        """See `Signer`."""
        if self.chains:
            self.chains -= 1
            raise SignerUnavailable
        return await self._inner.chain()


@pytest.mark.parametrize(
    "signer",
    [
        pytest.param(lambda inner: Away(inner, issues=3), id="before the transaction"),
        pytest.param(lambda inner: Away(inner, chains=3), id="after the commit"),
    ],
)
@pytest.mark.parametrize("lane", [False, True])
async def test_signer_is_waited_for(
    database: str, signer: Callable[[Signer], Signer], *, lane: bool
) -> None:
    """A restart of the signer delays joins; it refuses none and makes none twice."""
    order = Order()
    attestors = [Scripted("scripted", uses_tx=lane)]
    async with join_bench(database, attestors=attestors, observer=order, signer=signer) as bench:
        token = await bench.token(uses=2)
        first, second = await bench.ask(
            bench.machine().request(token.payload),
            scripted(bench, Script(spend=(token.id,))),
        )
        assert [code(first), code(second)] == ["joined", "joined"]
        assert order.retries == 3
        await one_effect(bench, 2)


# Somebody cancels


async def test_cancelled_judging_leaves_nothing_behind(database: str) -> None:
    """A worker that is told to stop must leave no transaction open and no task running."""
    attestors = [Scripted(), Scripted("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors) as bench:
        token = await bench.token(uses=10_000)
        before = asyncio.all_tasks()

        def nothing_runs() -> bool:
            return asyncio.all_tasks() <= before

        finished = 0
        step = 0.0005
        wanted: list[bytes] = []
        while finished < 3:
            requests = [
                bench.machine().request(token.payload),
                scripted(bench, Script(spend=(token.id,), hops=3)),
                bench.machine().request(Script(spend=(token.id,)).encode(), attestor="lane"),
            ]
            wanted += requests
            try:
                async with asyncio.timeout(step):
                    await bench.ask(*requests)
                finished += 1
            except TimeoutError:
                # The driver asks the server to end the statement; nothing else goes on.
                await until(nothing_runs, "all tasks have ended")
            step *= 1.25
        await _nobody_is_in_a_transaction(bench)
        answers = [code(answer) for request in wanted for answer in await bench.ask(request)]
        assert answers == ["joined"] * len(wanted)
        await one_effect(bench, len(wanted))


async def _nobody_is_in_a_transaction(bench: Bench) -> None:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'watchword-test'"
        " AND datname = current_database() AND xact_start IS NOT NULL"
    )
    deadline = time.monotonic() + 5
    while await bench.one(query):
        assert time.monotonic() < deadline, "a transaction is left open"
        await asyncio.sleep(0.01)


# What cannot be read


async def test_quarantined_record_counts_once_whoever_sends_its_name(database: str) -> None:
    """Its digest is its place, and nobody can take that place beforehand with bytes of theirs."""
    async with join_bench(database) as bench:
        from watchword.handlers.join.records import Incoming  # noqa: PLC0415

        await bench.ask(b"join.requests/2/77")
        poison = Incoming(None, "join.requests", 2, 77)
        await bench.engine.quarantine(poison, "poison")
        await bench.engine.quarantine(poison, "poison")
        rows = await bench.fetch('SELECT reason, "partition", "offset" FROM refusals ORDER BY id')
        assert [tuple(row) for row in rows] == [("undecodable", 0, 1), ("poison", 2, 77)]
