"""Attestors that bring their own SQL: it stands and falls with the join, in a transaction that is nobody else's."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.support.attestors.scripted import Script, Scripted, Way
from tests.support.joins import Bench, join_bench
from tests.support.lanes import NOTE, ask, lane_bench, notes, prepare
from tests.support.scenarios import Order
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres


@pytest.fixture
async def lane(database: str) -> AsyncGenerator[Bench]:
    """Give a service with a `lane` attestor, a table for its notes, and places to join."""
    async with lane_bench(database) as bench:
        yield bench


async def test_admission_keeps_what_its_verifier_wrote(lane: Bench) -> None:
    """Otherwise a serial could be marked as delivered without the machine having joined, or the reverse."""
    assert await ask(lane, Script(statements=(NOTE,), bind="b", uses=(("u", None),))) == "joined"
    assert await notes(lane) == 1
    assert await lane.one("SELECT outcome FROM inbox") == 1


async def test_refusal_undoes_what_its_verifier_wrote(lane: Bench) -> None:
    """Whoever is refused must not be able to leave rows in an author's tables."""
    assert await ask(lane, Script(way="refuse", statements=(NOTE, NOTE))) == "refused"
    assert await notes(lane) == 0
    rows = await lane.fetch("SELECT attestor || ':' || reason, published FROM refusals")
    assert [tuple(row) for row in rows] == [("lane:no", True)]
    assert await lane.one("SELECT reason FROM inbox") == "lane:no"


async def test_refusal_at_the_settlement_undoes_it_too(lane: Bench) -> None:
    """The verifier had said yes; what refuses comes later, under the locks."""
    assert await ask(lane, Script(uses=(("u", None),), statements=(NOTE,))) == "joined"
    assert await ask(lane, Script(uses=(("u", None),), statements=(NOTE,))) == "refused"
    assert await ask(lane, Script(bind="b", statements=(NOTE,))) == "joined"
    assert await ask(lane, Script(bind="b", statements=(NOTE,))) == "refused"
    assert await notes(lane) == 2
    rows = await lane.fetch("SELECT reason, published FROM refusals ORDER BY id")
    # Published although the slots were first made in the savepoint that was undone.
    assert [tuple(row) for row in rows] == [("replayed", True), ("bound-elsewhere", True)]


async def test_bug_undoes_what_its_verifier_wrote(lane: Bench) -> None:
    """An author's exception is no verdict: nothing is kept, and another try is welcome."""
    ways: tuple[Way, ...] = ("raise", "junk", "exit")
    for way in ways:
        script = Script(way=way, detail="none", statements=(NOTE,))
        assert await ask(lane, script) == "UNAVAILABLE"
    assert await notes(lane) == 0
    assert await lane.one("SELECT count(*) FROM inbox") == 0


async def test_deferral_keeps_what_its_verifier_wrote(lane: Bench) -> None:
    """Round one may write down what round two has to compare."""
    machine = lane.machine()
    payload = Script(rounds=2, statements=(NOTE,)).encode()

    class WritesFirst(Scripted):
        async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
            assert context.tx is not None
            if context.state is None:
                await context.tx.execute(NOTE, context.csr_sha256)
            else:
                rows = await context.tx.fetch("SELECT csr FROM notes")
                assert [row["csr"] for row in rows] == [context.csr_sha256]
            return await super().verify(evidence, context)

    async with join_bench(
        lane.dsn,
        attestors=[WritesFirst("lane", uses_tx=True)],
        crypto=(lane.engine._crypto, lane.seal_to, lane.signing, lane.authority),
    ) as bench:
        payload = Script(rounds=2).encode()
        [first] = await bench.ask(machine.request(payload, attestor="lane"))
        assert first["deferred"]["type"] == "challenge"
        assert await notes(bench) == 1
        assert await bench.one("SELECT count(*) FROM inbox") == 0
        state = unb64(first["deferred"]["state"])
        [second] = await bench.ask(machine.request(payload, attestor="lane", state=state))
        assert second["outcome"] == "joined"


class ReadsAndWrites(Scripted):
    """Reads and writes at once."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do many things at the same time on the one connection."""
        assert context.tx is not None
        await asyncio.gather(
            *[context.bindings.get(n.to_bytes(32, "big")) for n in range(5)],
            *[context.tx.execute(NOTE, context.csr_sha256) for _ in range(5)],
            context.tokens.get("0123456789abcdef"),
        )
        return await super().verify(evidence, context)


async def test_author_may_read_and_write_at_once(database: str) -> None:
    """One connection does one thing at a time; that is for us to arrange."""
    order = Order()
    attestors = [ReadsAndWrites("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors, observer=order) as bench:
        await prepare(bench)
        assert await ask(bench, Script()) == "joined"
        assert await notes(bench) == 5
        assert order.retries == 0


class WritesLater(Scripted):
    """Leaves a task behind that goes on writing."""

    def __init__(self) -> None:
        """Keep the task."""
        super().__init__("lane", uses_tx=True)
        self.later: asyncio.Task[None] | None = None

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Refuse, and go on."""
        tx = context.tx
        assert tx is not None

        async def write() -> None:
            while True:
                await tx.execute(NOTE, context.csr_sha256)

        self.later = asyncio.create_task(write())
        await asyncio.sleep(0.05)
        return await super().verify(evidence, context)


async def test_nothing_is_written_after_the_verdict(database: str) -> None:
    """A write behind the refusal would be outside of what the refusal undoes."""
    attestor = WritesLater()
    async with join_bench(database, attestors=[attestor]) as bench:
        await prepare(bench)
        assert await ask(bench, Script(way="refuse")) == "refused"
        assert attestor.later is not None
        with pytest.raises(PermissionError):
            await attestor.later
        assert await notes(bench) == 0


class Crowded(Scripted):
    """Counts how many of it are in a transaction at once."""

    def __init__(self) -> None:
        """Nobody is."""
        super().__init__("lane", uses_tx=True)
        self.inside = 0
        self.most = 0

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Take a moment."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.02)
        self.inside -= 1
        return await super().verify(evidence, context)


async def test_two_lanes_are_open_at_the_most(database: str) -> None:
    """Slow verifiers with transactions of their own must not take the server's connections."""
    attestor = Crowded()
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web")
        told = await asyncio.gather(*[ask(bench, Script()) for _ in range(8)])
        assert told == ["joined"] * 8
        assert attestor.most == 2


async def test_dying_connection_is_not_the_authors_fault(database: str) -> None:
    """The join is tried again, and has one effect."""
    order = Order()
    attestors = [Scripted("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors, observer=order) as bench:
        await prepare(bench)
        store: Any = bench.engine._store
        real = store.lane

        async def dying() -> Any:  # noqa: ANN401 - a session
            session = await real()
            raw = session.raw

            async def die(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the session's
                session.raw = raw
                pid = session.connection.get_server_pid()
                await bench.fetch("SELECT pg_terminate_backend($1)", pid)
                return await raw(*arguments, **named)

            if order.retries < 2:
                session.raw = die
            return session

        store.lane = dying
        # Also an author who catches it.
        script = Script(statements=(NOTE,), swallow=True, bind="b")
        assert await ask(bench, script) == "joined"
        assert order.retries == 2
        assert await notes(bench) == 1
        assert await bench.one("SELECT count(*) FROM journal") == 1


async def test_context_of_others_has_no_transaction(database: str) -> None:
    """Raw SQL is for those who ask for it, in a transaction of their own."""
    seen: list[Any] = []

    class Looks(Scripted):
        async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
            del evidence
            seen.append(context.tx)
            return Admission(tenant=TenantId("acme"), role=context.role, pool="web")

    async with join_bench(database, attestors=[Looks("plain")]) as bench:
        await bench.place("acme", "web")
        assert await ask(bench, Script(), attestor="plain") == "joined"
    assert seen == [None]
