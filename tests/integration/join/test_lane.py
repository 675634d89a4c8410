"""Attestors that bring their own SQL: it stands and falls with the join, and reaches nobody else's."""

import asyncio
import contextlib
from typing import Any

import pytest

from tests.support.attestors.scripted import Script, Scripted, Way
from tests.support.joins import Bench, join_bench
from tests.support.scenarios import Order
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

NOTE = "INSERT INTO notes VALUES ($1)"
SETUP = "CREATE TABLE notes (csr bytea NOT NULL)"


def code(answer: dict[str, Any]) -> str:
    """Return what a machine was told in a word."""
    return str((answer.get("failed") or {}).get("code") or answer["outcome"])


async def ask(bench: Bench, script: Script, *, attestor: str = "lane") -> str:
    """Ask with a new machine and return what it was told."""
    [answer] = await bench.ask(bench.machine().request(script.encode(), attestor=attestor))
    return code(answer)


@pytest.fixture
async def lane(database: str) -> Any:  # noqa: ANN401 - an asynchronous generator of benches
    """Give a service with a `lane` attestor, a table for its notes, and places to join."""
    order = Order()
    async with join_bench(
        database, attestors=[Scripted("lane", uses_tx=True)], observer=order
    ) as bench:
        await bench.run(SETUP)
        await bench.author_role("lane", "notes")
        await bench.place("acme", "web")
        yield bench
        assert order.halvings == 0


async def notes(bench: Bench) -> int:
    """Return how many notes there are."""
    count: int = await bench.one("SELECT count(*) FROM notes")
    return count


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


AFTERWARDS = {
    "admits": Script(),
    "reads": Script(bind="b", rekey=True),
    "lets the core read": Script(hardware_key="h"),
    "spends": Script(spend=("0123456789abcdef",)),
}


async def test_error_of_its_own_sql_never_admits(lane: Bench) -> None:
    """PostgreSQL has aborted the transaction; trying again would fail again, for ever."""
    await lane.run(
        "INSERT INTO tokens (id, secret_sha256, tenant, pool, role, uses_total, uses_left, created_by)"
        " VALUES ('0123456789abcdef', sha256('x'), 'acme', 'web', 'node', 1, 1, 'test')"
    )
    for what, rest in AFTERWARDS.items():
        for swallow in (False, True):
            script = rest.but(statements=(NOTE, "SELECT 1/0"), swallow=swallow)
            async with asyncio.timeout(30):
                assert await ask(lane, script) == "UNAVAILABLE", what
    assert await notes(lane) == 0
    assert await lane.one("SELECT count(*) FROM nodes") == 0
    assert await lane.one("SELECT count(*) FROM inbox") == 0


class Defers(Scripted):
    """Catches its own SQL error and asks for another round."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Break the transaction, then play a script of two rounds."""
        assert context.tx is not None
        with contextlib.suppress(Exception):
            await context.tx.fetch("SELECT 1/0")
        return await super().verify(evidence, context)


async def test_error_of_its_own_sql_never_defers(database: str) -> None:
    """What round one wrote is gone with the transaction, so there is nothing to go on from."""
    async with join_bench(database, attestors=[Defers("lane", uses_tx=True)]) as bench:
        await bench.author_role("lane")
        async with asyncio.timeout(30):
            assert await ask(bench, Script(rounds=2)) == "UNAVAILABLE"


CONTROL = (
    "COMMIT",
    "  commit and chain",
    "/* harmless */ COMMIT",
    "/* a /* nested */ SELECT */ COMMIT",
    "-- harmless\nCOMMIT",
    "-- harmless\rCOMMIT /*\nSELECT 1 */",
    "\ufeffCOMMIT",
    "SELECT 1; COMMIT",
    "INSERT INTO notes VALUES ('x'); ROLLBACK",
    "ROLLBACK",
    "ABORT",
    "END",
    "BEGIN",
    "START TRANSACTION",
    "SAVEPOINT mine",
    "RELEASE SAVEPOINT lane",
    "ROLLBACK TO SAVEPOINT lane",
    "PREPARE TRANSACTION 'mine'",
    "SET ROLE pg_monitor",
    "SET SESSION AUTHORIZATION pg_monitor",
    "RESET ALL",
    "DISCARD ALL",
    "LOCK TABLE nodes",
    "DO $$ BEGIN COMMIT; END $$",
    "CALL anything()",
    "COPY notes TO STDOUT",
    "LISTEN anything",
    "CREATE TABLE mine (x int)",
    "DROP TABLE notes",
    "TRUNCATE notes",
    "EXPLAIN ANALYZE INSERT INTO notes VALUES ('x')",
    "",
    # What only looks like a query
    "SELECT set_config('role', 'pg_monitor', false)",
    "SELECT set_config('role', 'pg_monitor', true)",
    "SELECT set_config('search_path', 'pg_catalog', false)",
)


async def test_transaction_and_role_are_the_cores(lane: Bench) -> None:
    """A COMMIT in the middle would keep half a join; a role would outlive it on the connection."""
    for number, statement in enumerate(CONTROL):
        for swallow in (False, True):
            script = Script(statements=(NOTE, statement, NOTE), swallow=swallow)
            async with asyncio.timeout(30):
                assert await ask(lane, script) == "UNAVAILABLE", statement
        assert await notes(lane) == 0, statement
        # The same connection serves the next one.
        assert await ask(lane, Script(bind=f"b{number}")) == "joined", statement
    assert await lane.one("SELECT count(*) FROM inbox") == len(CONTROL)
    assert await lane.one("SELECT count(*) FROM refusals") == 0


async def test_queries_and_changes_of_rows_are_the_authors(lane: Bench) -> None:
    """The fence must not stand in the way of what it is for."""
    statements = (
        NOTE,
        " \n(SELECT csr FROM notes) UNION (SELECT 'x')",
        "WITH found AS (SELECT * FROM notes) UPDATE notes SET csr = csr",
        "MERGE INTO notes n USING (SELECT $1::bytea AS csr) s ON n.csr = s.csr WHEN MATCHED THEN DELETE",
        "VALUES (1)",
        "TABLE notes",
        "delete from notes",
        NOTE,
    )
    assert await ask(lane, Script(statements=statements)) == "joined"
    assert await notes(lane) == 1


AUTHORS_ERRORS = (
    "SELECT raises()",
    "SELECT $2::int + $1::int",
    "SELECT no_such_column",
    "INSERT INTO notes VALUES (NULL)",
    "SELECT '\0'",
    "SELECT '\ud800'",
)


async def test_authors_error_is_not_tried_again_for_ever(lane: Bench) -> None:
    """A join that always fails must not stop the partition behind it."""
    await lane.run(
        "CREATE FUNCTION raises() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
    )
    for number, statement in enumerate(AUTHORS_ERRORS):
        async with asyncio.timeout(30):
            assert await ask(lane, Script(statements=(statement,))) == "UNAVAILABLE", statement
        assert await ask(lane, Script(bind=f"b{number}")) == "joined", statement


async def test_statement_that_takes_too_long_ends_with_its_verifier(lane: Bench) -> None:
    """Asleep, or waiting for a lock that somebody holds: neither may hold the lane."""
    token = await lane.token()
    await lane.run("INSERT INTO notes VALUES ('locked')")
    lock = await lane.other()
    try:
        await lock.execute("BEGIN; SELECT * FROM notes FOR UPDATE")
        for statement in ("SELECT pg_sleep(60)", "UPDATE notes SET csr = 'x'"):
            script = Script(statements=(statement,)).encode()
            async with asyncio.timeout(30):
                late, good = await lane.ask(
                    lane.machine().request(script, attestor="lane"),
                    lane.machine().request(token.payload) if statement < "T" else b"{}",
                )
            assert code(late) == "UNAVAILABLE"
            assert code(good) in ("joined", "INVALID_INPUT")
    finally:
        await lock.close()
    assert await ask(lane, Script(bind="b")) == "joined"


class GivesUp(Scripted):
    """Waits for its own statement for a while, then goes on without it."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit although the statement was given up."""
        assert context.tx is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await context.tx.fetch("SELECT pg_sleep(60)")
        return await super().verify(evidence, context)


async def test_statement_that_was_given_up_never_admits(database: str) -> None:
    """Giving up aborts the transaction as an error does, without an error."""
    async with join_bench(database, attestors=[GivesUp("lane", uses_tx=True)]) as bench:
        await bench.author_role("lane")
        async with asyncio.timeout(30):
            assert await ask(bench, Script(bind="b")) == "UNAVAILABLE"


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
        await bench.run(SETUP)
        await bench.author_role("lane", "notes")
        await bench.place("acme", "web")
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
        await bench.run(SETUP)
        await bench.author_role("lane", "notes")
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
        await bench.run(SETUP)
        await bench.author_role("lane", "notes")
        await bench.place("acme", "web")
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


class SleepsAndReads(Scripted):
    """Reads while its own statement takes for ever."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do both at once; neither ends."""
        assert context.tx is not None
        await asyncio.gather(
            context.tx.fetch("SELECT pg_sleep(60)"), context.tokens.get("0123456789abcdef")
        )
        return await super().verify(evidence, context)


async def test_read_behind_its_own_slow_statement_is_the_authors_fault(database: str) -> None:
    """It looks like a database that stalls; tried again for ever, it would stop the partition."""
    order = Order()
    attestors = [SleepsAndReads("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors, observer=order) as bench:
        await bench.author_role("lane")
        async with asyncio.timeout(20):
            assert await ask(bench, Script()) == "UNAVAILABLE"
        assert order.retries == 0
