"""Attestors that bring their own SQL: which statements are theirs, and what one costs that fails, or takes too long."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, code, join_bench
from tests.support.lanes import NOTE, ask, lane_bench, notes
from tests.support.scenarios import Order
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext

pytestmark = pytest.mark.postgres


@pytest.fixture
async def lane(database: str) -> AsyncGenerator[Bench]:
    """Give a service with a `lane` attestor, a table for its notes, and places to join."""
    async with lane_bench(database) as bench:
        yield bench


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
