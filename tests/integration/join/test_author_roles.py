"""An attestor's own SQL runs with a role of its own: it reaches what an operator granted, and nothing of ours beside uses."""

import secrets

import asyncpg
import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, join_bench
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.handlers.errors import BadArgument
from watchword.handlers.store.author_roles import create_author_role, missing_author_roles
from watchword.handlers.store.connection import Database
from watchword.schemas.ids import AttestorId, TokenId
from watchword.streams.wiring.database_watch import DatabaseWatch

pytestmark = pytest.mark.postgres


def fresh_id() -> AttestorId:
    """Return an id that nobody had: roles are the server's, and outlive the database of a test."""
    return AttestorId(f"a-{secrets.token_hex(4)}")


async def _ask(bench: Bench, attestor: str, script: Script) -> str:
    [answer] = await bench.ask(bench.machine().request(script.encode(), attestor=attestor))
    failed = answer.get("failed")
    return str(failed["code"] if failed else answer["outcome"])


FORBIDDEN = (
    "SELECT id FROM nodes",
    "SELECT secret_sha256 FROM tokens",
    "UPDATE tokens SET uses_left = uses_left + 1",
    "INSERT INTO bans VALUES (sha256('x'), 'k', 'v', now(), 'me', '')",
    "SELECT subject FROM attestation_uses",
    "DELETE FROM attestation_uses",
    "INSERT INTO node_bindings VALUES ('x', sha256('x'), gen_random_uuid())",
    "SELECT csr FROM ungranted",
)
USES = "INSERT INTO attestation_uses (attestor, subject, node_id) VALUES ('x', sha256($1), gen_random_uuid())"


async def test_statements_reach_what_was_granted(database: str) -> None:
    """What the role may not do breaks the join, whatever the author makes of the error; what it may do is kept."""
    attestor = fresh_id()
    async with join_bench(database, attestors=[Scripted(attestor, uses_tx=True)]) as bench:
        await bench.place("acme", "web")
        await bench.run("CREATE TABLE granted (csr bytea); CREATE TABLE ungranted (csr bytea)")
        await bench.author_role(attestor, "granted")
        for statement in FORBIDDEN:
            for swallow in (False, True):
                script = Script(statements=(statement,), swallow=swallow)
                assert await _ask(bench, attestor, script) == "UNAVAILABLE", statement
        script = Script(statements=("INSERT INTO granted VALUES ($1)", USES))

        assert await _ask(bench, attestor, script) == "joined"
        assert await bench.one("SELECT count(*) FROM granted") == 1
        assert await bench.one("SELECT count(*) FROM attestation_uses") == 1
        assert await bench.one("SELECT count(*) FROM nodes") == 1
        assert await bench.one("SELECT count(*) FROM inbox") == 1


async def test_without_its_role_no_statement_runs(database: str) -> None:
    """Not with ours instead: a service that a host has put together fails closed too."""
    attestor = fresh_id()
    async with join_bench(database, attestors=[Scripted(attestor, uses_tx=True)]) as bench:
        await bench.place("acme", "web")
        await bench.run("CREATE TABLE granted (csr bytea); GRANT ALL ON granted TO public")
        script = Script(statements=("INSERT INTO granted VALUES ($1)",))

        assert await _ask(bench, attestor, script) == "UNAVAILABLE"
        assert await bench.one("SELECT count(*) FROM granted") == 0
        assert await bench.one("SELECT count(*) FROM inbox") == 0
        await bench.author_role(attestor)
        assert await _ask(bench, attestor, script) == "joined"


class Speaks(Scripted):
    """Says who it speaks as, and reads what only we may read."""

    spoke: str = ""
    knew: bool = False

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Ask by raw SQL, then by a typed read, then by raw SQL."""
        assert context.tx is not None
        for _ in range(2):
            self.spoke = (await context.tx.fetch("SELECT current_user AS who"))[0]["who"]
            self.knew = await context.tokens.get(TokenId("0123456789abcdef")) is not None
        return await super().verify(evidence, context)


async def test_role_is_the_statements_and_not_the_joins(database: str) -> None:
    """Typed reads beside it, the settlement and whoever has the connection next are ours as ever."""
    attestor = Speaks(fresh_id(), uses_tx=True)
    async with join_bench(database, attestors=[attestor, Scripted("plain")]) as bench:
        await bench.place("acme", "web")
        await bench.author_role(attestor.id)
        await bench.run(
            "INSERT INTO tokens (id, secret_sha256, tenant, pool, role, uses_total, uses_left, created_by)"
            " VALUES ('0123456789abcdef', sha256('x'), 'acme', 'web', 'node', 1, 1, 'test')"
        )
        outcomes = [
            await _ask(bench, attestor.id, Script(way="refuse")),
            await _ask(bench, attestor.id, Script()),
            await _ask(bench, "plain", Script()),
        ]

        assert outcomes == ["refused", "joined", "joined"]
        assert attestor.spoke == f"plg_{attestor.id.replace('-', '_')}"
        assert attestor.knew


async def test_worker_waits_for_the_roles_of_its_attestors(database: str) -> None:
    """Half of what is configured is nothing: it says in a sentence what to run, and goes on once that was done."""
    attestor = fresh_id()
    opened = Database(database, application_name="watch")
    try:
        watch = DatabaseWatch(opened, database, [attestor])
        await watch.look()
        lacking = watch.problem()
        await create_author_role(opened, attestor)
        await watch.look()

        assert lacking is not None
        assert f"`watchword db attestor-role {attestor}`" in lacking
        assert watch.problem() is None
    finally:
        await opened.close()


async def test_worker_that_logs_in_as_somebody_else_is_made_a_member(database: str) -> None:
    """Workers need not own the tables; whoever is no member cannot take the role on, and is told so."""
    attestor, worker = fresh_id(), f"worker_{secrets.token_hex(4)}"
    opened = Database(database, application_name="roles")
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(f"CREATE ROLE {worker} LOGIN")
        role = await create_author_role(opened, attestor)
        await connection.execute(f"SET SESSION AUTHORIZATION {worker}")
        missing = await missing_author_roles(connection, [attestor])
        await create_author_role(opened, attestor, worker=worker)

        assert missing == [attestor]
        assert await missing_author_roles(connection, [attestor]) == []
        await connection.execute(f"SET ROLE {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT id FROM watchword.nodes")
    finally:
        await connection.close()
        await opened.close()


async def test_id_that_would_lose_its_end_has_no_role(database: str) -> None:
    """PostgreSQL cuts long names off: two attestors would share what is meant to keep them apart."""
    opened = Database(database, application_name="roles")
    try:
        with pytest.raises(BadArgument):
            await create_author_role(opened, "a" * 60)
    finally:
        await opened.close()
