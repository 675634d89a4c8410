"""Any order of joins, renewals, bans, reclaims, evictions and deletions, on a clock that goes on: no promise is broken.

A hypothesis state machine against a real PostgreSQL. What it expects is a small model of the states; after each
step the model and the tables agree, and at the end the journal explains every row.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, Machine, join_bench
from tests.support.renewals import Node, explained
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import Conflict, NotFound
from watchword.handlers.operators import bans, reclaims
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.service import JoinClock
from watchword.handlers.store.connection import Database

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

ADA = Actor("ada", "a test")
CHIPS = ("c1", "c2", "c3", "c4")
LIFETIME = timedelta(days=2)
LIVE = frozenset(("adopting", "active"))

EXAMPLES, STEPS = 42, 50
"""At least 2,000 steps; what a step costs is PostgreSQL's time."""

HAPPENS = (
    "joined", "re-keyed", "reclaimed", "renewed", "stolen", "evict", "retire", "delete", "banned", "unbanned",
)  # fmt: skip

T = TypeVar("T")


@dataclass
class Known:
    """What the model knows of a node."""

    state: str
    chip: str | None
    """Whose subject was proved of it."""
    node: Node
    """Its current key and certificate."""
    expires_h: int
    """On the model's clock."""
    revoked: bool = False
    older: list[Node] = field(default_factory=list[Node])
    """Certificates that were renewed, newest last, with their ends."""
    ends: list[int] = field(default_factory=list[int])


class Life(RuleBasedStateMachine):
    """Machines with chips, operators, and a clock."""

    loop: asyncio.AbstractEventLoop
    dsn: str
    steps = 0
    happened: Counter[str]
    """What the steps did, over all examples: a machine that does nothing breaks nothing."""

    @initialize()
    def begin(self) -> None:
        """Start with an empty database and the model of it."""
        self.hours = 0
        self.known: dict[str, Known] = {}
        self.bound: dict[str, str] = {}
        self.banned: set[str] = set()
        self.grants: dict[str, tuple[str, int]] = {}
        self._stack = AsyncExitStack()
        self.do(self._open())

    async def _open(self) -> None:
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "watchword"})
        try:
            await connection.execute(EMPTY)
        finally:
            await connection.close()
        self.store = Database(self.dsn, application_name="test")
        self.bench: Bench = await self._stack.enter_async_context(
            join_bench(
                self.dsn, attestors=[Scripted("scripted")], clock=JoinClock(lifetime=LIFETIME)
            )
        )
        await self.bench.place("acme", "web")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the test's own loop."""
        return self.loop.run_until_complete(work)

    def ask(self, request: bytes) -> dict[str, Any]:
        """Return the answer to one request."""
        [answer] = self.do(self.bench.ask(request))
        return answer

    # One rule with weights, and not one for each event: hypothesis leaves rules out of whole examples, and
    # what is wanted here is that everything meets everything.

    @rule(
        event=st.sampled_from(
            ("join",) * 6 + ("renew",) * 6 + ("grant",) * 3
            + ("steal", "evict", "retire", "delete", "ban", "unban", "unban", "pass_by")
        ),
        nth=st.integers(0, 63),
        chip=st.sampled_from((*CHIPS, *CHIPS, None)),
        hours=st.sampled_from((7, 25)),
    )  # fmt: skip
    def step(self, event: str, nth: int, chip: str | None, hours: int) -> None:
        """Something happens: to a machine with this chip, to one of the nodes, or to the clock."""
        if event == "pass_by":
            return self.pass_by(hours)
        named = chip or CHIPS[nth % len(CHIPS)]
        if event == "ban":
            return self.ban(named)
        if event == "unban":
            return self.unban(named)
        if event == "join" or not self.known:
            self.join(chip)
            return None
        node = sorted(self.known)[nth % len(self.known)]
        if event == "renew":
            return self.renew(node)
        if event == "steal":
            return self.steal(node)
        if event == "grant":
            return self.grant(node, named)
        verb: Verb = "evict" if event == "evict" else "retire" if event == "retire" else "delete"
        return self.put_out(node, verb)

    # Machines

    def join(self, chip: str | None) -> str:
        """A machine attests: anew, or, if its chip is bound, as the node that it is."""
        machine = self.bench.machine()
        script = Script(rekey=True)
        if chip is not None:
            script = script.but(bind=chip, subjects=(("ek", chip),))
        answer = self.ask(machine.request(script.encode(), attestor="scripted"))
        granted = self._granted(chip)
        if chip in self.banned:
            assert answer["outcome"] == "refused"
            return ""
        expected = granted or self.bound.get(chip or "")
        if granted is not None and self.bound.get(chip or "") not in (None, granted):
            assert answer["outcome"] == "refused"
            return ""
        if expected is not None and self.known[expected].state in {"banned", "deleted"}:
            assert answer["outcome"] == "refused"
            return ""
        assert answer["outcome"] == "joined", answer
        return self._joined(machine, chip, answer, expected, granted)

    def _granted(self, chip: str | None) -> str | None:
        node, until = self.grants.get(chip or "", ("", -1))
        return node if self.hours < until else None

    def _joined(
        self,
        machine: Machine,
        chip: str | None,
        answer: dict[str, Any],
        expected: str | None,
        granted: str | None,
    ) -> str:
        node = Node.of(machine, answer)
        if expected is None:
            assert node.id not in self.known
        else:
            assert node.id == expected
        self.happened["reclaimed" if granted else "re-keyed" if expected else "joined"] += 1
        if granted is not None:
            for other in [name for name, owner in self.bound.items() if owner == granted]:
                del self.bound[other]
            del self.grants[chip or ""]
        self.known[node.id] = Known("adopting", chip, node, self.hours + self._life_h())
        if chip is not None:
            self.bound[chip] = node.id
        return node.id

    @staticmethod
    def _life_h() -> int:
        return LIFETIME // timedelta(hours=1)

    def renew(self, node: str) -> None:
        """A node renews from its current certificate."""
        if not node:
            return
        known, machine = self.known[node], self.bench.machine()
        answer = self.ask(known.node.renewal(machine))
        may = known.state in LIVE and not known.revoked and self.hours < known.expires_h
        assert answer["outcome"] == ("joined" if may else "refused"), (answer, known)
        if may:
            assert answer["joined"]["nodeId"] == node
            self.happened["renewed"] += 1
            known.older.append(known.node)
            known.ends.append(known.expires_h)
            known.node, known.state = Node.of(machine, answer), "active"
            known.expires_h = self.hours + self._life_h()

    def steal(self, node: str) -> None:
        """Somebody renews from a certificate that was renewed before, with a key of their own."""
        known = self.known.get(node)
        if known is None or not known.older:
            return
        answer = self.ask(known.older[-1].renewal(self.bench.machine()))
        assert answer["outcome"] == "refused"
        if known.state in LIVE and self.hours < known.ends[-1]:
            known.state, known.revoked = "evicted", True
            self.happened["stolen"] += 1

    # Operators

    def put_out(self, node: str, verb: Verb) -> None:
        """An operator puts a node out."""
        if not node:
            return
        known = self.known[node]
        froms = {
            "evict": LIVE,
            "retire": LIVE | {"evicted"},
            "delete": LIVE | {"evicted", "retired", "banned"},
        }[verb]
        act = change_nodes(self.store, ADA, verb, [SeenNode(UUID(node))])
        if known.state not in froms:
            with pytest.raises(Conflict):
                self.do(act)
            return
        self.do(act)
        self.happened[verb] += 1
        known.state = {"evict": "evicted", "retire": "retired", "delete": "deleted"}[verb]
        known.revoked = True
        if verb != "evict":
            self.bound = {chip: owner for chip, owner in self.bound.items() if owner != node}

    def ban(self, chip: str) -> None:
        """An operator bans a chip."""
        act = bans.add_bans(self.store, ADA, [Subject("ek", chip)])
        if chip in self.banned:
            with pytest.raises(Conflict):
                self.do(act)
            return
        self.do(act)
        self.banned.add(chip)
        for known in self._of(chip):
            if known.state in LIVE | {"evicted"}:
                known.state, known.revoked = "banned", True
                self.happened["banned"] += 1

    def unban(self, chip: str) -> None:
        """An operator ends the ban of a chip."""
        act = bans.remove_bans(self.store, ADA, [Subject("ek", chip)])
        if chip not in self.banned:
            with pytest.raises(NotFound):
                self.do(act)
            return
        self.do(act)
        self.banned.discard(chip)
        for known in self._of(chip):
            if known.state == "banned" and not self._proven(known) & self.banned:
                known.state = "evicted"
                self.happened["unbanned"] += 1

    def _of(self, chip: str) -> list[Known]:
        return [known for known in self.known.values() if chip in self._proven(known)]

    def _proven(self, known: Known) -> set[str]:
        return self.proven.get(known.node.id, set())

    @property
    def proven(self) -> dict[str, set[str]]:
        """Chips that were ever proved of a node: a ban finds it by each."""
        rows = self.do(self.bench.fetch("SELECT node_id, value FROM node_subjects"))
        found: dict[str, set[str]] = {}
        for row in rows:
            found.setdefault(str(row["node_id"]), set()).add(row["value"])
        return found

    def grant(self, node: str, chip: str) -> None:
        """An operator lets a chip reclaim a node."""
        if not node or self._granted(chip) is not None:
            return
        act = reclaims.grant_reclaim(
            self.store,
            ADA,
            ReclaimOrder(
                node=UUID(node),
                attestor="scripted",
                subject=Subject("ek", chip),
                expires_in=timedelta(hours=30),
            ),
        )
        if self.known[node].state in {"banned", "deleted"}:
            with pytest.raises(Conflict):
                self.do(act)
            return
        self.do(act)
        self.grants[chip] = (node, self.hours + 30)

    def pass_by(self, hours: int) -> None:
        """Time passes; the keys of the deployment last for weeks."""
        if self.hours > 24 * 20:
            return
        self.hours += hours

        async def shift() -> None:
            name = await self.bench.one("SELECT current_database()")
            text = f"{self.hours} hours"
            await self.bench.run(f"ALTER DATABASE \"{name}\" SET watchword.clock_shift = '{text}'")

        self.do(shift())
        self.do(self._reopen())

    async def _reopen(self) -> None:
        """Let every connection see the new time: only a new one does."""
        await self.store.close()
        await self.bench.close()
        connection = await self.bench.other()
        try:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        finally:
            await connection.close()
        self.store = Database(self.dsn, application_name="test")

    # What holds after each step

    @invariant()
    def tables_are_as_expected(self) -> None:
        """States, certificates and bindings are those of the model."""
        if not hasattr(self, "known"):
            return
        Life.steps += 1
        rows = self.do(
            self.bench.fetch(
                "SELECT n.id::text, n.state, count(c.*) FILTER (WHERE c.is_current) AS current,"
                " count(c.*) FILTER (WHERE c.is_current AND c.revoked_at IS NULL) AS good"
                " FROM nodes n JOIN node_certs c ON c.node_id = n.id GROUP BY n.id"
            )
        )
        found = {row["id"]: (row["state"], row["current"], row["good"]) for row in rows}
        assert found == {
            node: (known.state, 1, 0 if known.revoked else 1) for node, known in self.known.items()
        }
        bindings = self.do(self.bench.fetch("SELECT node_id::text FROM node_bindings"))
        assert sorted(row[0] for row in bindings) == sorted(self.bound.values())

    def teardown(self) -> None:
        """The journal explains what there is."""
        if hasattr(self, "bench"):
            self.do(explained(self.dsn))
            self.do(self._close())

    async def _close(self) -> None:
        name = await self.bench.one("SELECT current_database()")
        await self.bench.run(f'ALTER DATABASE "{name}" RESET watchword.clock_shift')
        await self._stack.aclose()
        await self.store.close()


EMPTY = """
DELETE FROM reclaim_grants; DELETE FROM node_certs; DELETE FROM nodes; DELETE FROM tokens; DELETE FROM pools; DELETE FROM sites;
DELETE FROM admission_claims; DELETE FROM node_subjects; DELETE FROM node_bindings; DELETE FROM attestation_uses; DELETE FROM bans;
DELETE FROM inbox; DELETE FROM journal; DELETE FROM refusals; DELETE FROM refusal_slots; DELETE FROM audit_log;
DELETE FROM tenants WHERE id <> 'root'
"""


def test_no_order_of_events_breaks_a_promise(databases: Any) -> None:  # noqa: ANN401 - a fixture
    """Nobody can think of every order in which people and machines do things over the years."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        context = databases.migrated()
        Life.dsn = loop.run_until_complete(context.__aenter__())
        Life.loop = loop
        Life.steps, Life.happened = 0, Counter()
        try:
            run_state_machine_as_test(
                Life,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
            assert Life.steps > 2000
            assert all(Life.happened[what] > 3 for what in HAPPENS), Life.happened
        finally:
            loop.run_until_complete(context.__aexit__(None, None, None))
