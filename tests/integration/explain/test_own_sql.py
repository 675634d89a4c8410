"""Attestors that bring their own SQL are asked again too, and nothing of what they write stays."""

import secrets

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.explaining import Asked, disagreements, explain, explain_all, explainer
from tests.support.joins import join_bench, keys
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext

pytestmark = pytest.mark.postgres

NOTE = "INSERT INTO notes VALUES ($1, current_user)"
USE = "INSERT INTO attestation_uses (attestor, subject, node_id) VALUES ('x', sha256('x'), gen_random_uuid()) ON CONFLICT DO NOTHING"


class Speaks(Scripted):
    """Remembers who it spoke as, and how many notes it saw."""

    spoke = ""
    saw = 0

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do what the script says, and look."""
        found = await super().verify(evidence, context)
        assert context.tx is not None
        [row] = await context.tx.fetch("SELECT current_user AS who, count(*) AS many FROM notes")
        self.spoke, self.saw = row["who"], row["many"]
        return found


def fresh_id() -> str:
    """Return an id that nobody had: roles are the server's, and outlive the database of a test."""
    return f"a-{secrets.token_hex(4)}"


async def test_it_writes_as_its_author_and_nothing_stays(database: str) -> None:
    """Whoever explains changes nothing, also through a stranger's SQL; and the verdict is the recorded one."""
    attestor = Speaks(fresh_id(), uses_tx=True)
    crypto, asked = keys(), Asked()
    async with join_bench(database, attestors=[attestor], crypto=crypto, observer=asked) as bench:
        await bench.place("acme", "web")
        await bench.run("CREATE TABLE notes (csr bytea, who text)")
        await bench.author_role(attestor.id, "notes")
        for script in (
            Script(statements=(NOTE, USE)),
            Script(statements=(NOTE,), way="refuse"),
            Script(statements=(NOTE,), bind="b1"),
            Script(statements=(NOTE,), bind="b1"),  # bound by now
        ):
            await bench.ask(bench.machine().request(script.encode(), attestor=attestor.id))
        tables = ("notes", "attestation_uses", "nodes", "inbox", "audit_log", "journal")
        before = [await bench.fetch(f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - our tables
        attestor.spoke = ""
        made_by = explainer(crypto[0], [attestor])
        found = await explain_all(bench, made_by, asked.incoming.values())
        after = [await bench.fetch(f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - our tables

    assert disagreements(found) == []
    assert [one.verdict.outcome for one in found] == ["joined", "refused", "joined", "refused"]
    assert found[3].verdict.reason == f"{attestor.id}:bound-elsewhere"
    assert attestor.spoke == f"plg_{attestor.id.replace('-', '_')}"
    assert attestor.saw == 3  # the two that stayed, and its own for as long as it looked
    assert after == before
    assert all(any("rolled back" in note for note in one.notes) for one in found)


async def test_a_statement_that_fails_is_no_verdict(database: str) -> None:
    """What an author's SQL breaks is broken when it is explained too, and explanations after it go on."""
    attestor = Scripted(fresh_id(), uses_tx=True)
    crypto, asked = keys(), Asked()
    async with join_bench(database, attestors=[attestor], crypto=crypto, observer=asked) as bench:
        await bench.place("acme", "web")
        await bench.run("CREATE TABLE notes (csr bytea PRIMARY KEY, who text)")
        await bench.author_role(attestor.id, "notes")
        for swallow in (True, False):
            script = Script(statements=(NOTE,), swallow=swallow)
            await bench.ask(bench.machine().request(script.encode(), attestor=attestor.id))
        first, second = asked.incoming.values()
        made_by = explainer(crypto[0], [attestor])
        taken = await explain(
            bench, made_by, first
        )  # its own row is there: of its tables nothing is folded back
        await bench.run("DELETE FROM notes")
        freed = await explain_all(bench, made_by, [first, second])

    assert (taken.verdict.outcome, taken.agrees) == ("unavailable", False)
    assert disagreements(freed) == []
