"""Any order of joins, renewals, bans, reclaims, deletions, commands and new keys, on a clock that goes on: no promise is broken.

A hypothesis state machine against a real PostgreSQL. What it expects is a small model of the states; after each
step the model and the tables agree, and at the end the journal explains every row.
"""

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
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
from tests.support.life import (
    BY_KEYS,
    BY_NODE,
    EMPTY,
    HAPPENS,
    LIVE,
    KeysAndCommands,
    Known,
)
from tests.support.life_commands import ONLY_DIAG, LifeCommands
from tests.support.life_keys import LifeKeys
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
_VERBS: dict[str, Verb] = {"evict": "evict", "retire": "retire", "delete": "delete"}
LIFE_H = LIFETIME // timedelta(hours=1)

EXAMPLES, STEPS = 90, 50
"""More than 2,000 steps, so that each thing happens often enough; what a step costs is PostgreSQL's time."""


class Life(KeysAndCommands, RuleBasedStateMachine):
    """Machines with chips, operators, and a clock."""

    steps = 0

    @initialize()
    def begin(self) -> None:
        """Start with an empty database and the model of it."""
        self.hours = 0
        self.known: dict[str, Known] = {}
        self.bound: dict[str, str] = {}
        self.banned: set[str] = set()
        self.grants: dict[str, tuple[str, int]] = {}
        self.commands = LifeCommands()
        self.sealed, self.challenged = [], []
        self._stack = AsyncExitStack()
        self.do(self._open())

    async def _open(self) -> None:
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "watchword"})
        try:
            await connection.execute(EMPTY)
        finally:
            await connection.close()
        self.store = Database(self.dsn, application_name="test")
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.keys = LifeKeys(Path(folder) / "keys", LIFETIME)
        self.bench: Bench = await self._stack.enter_async_context(
            join_bench(
                self.dsn,
                attestors=[Scripted("scripted")],
                clock=JoinClock(lifetime=LIFETIME),
                crypto=self.keys.for_bench(),
            )
        )
        self.keys.use(self.bench)
        await self.bench.place("acme", "web")

    # One rule with weights, and not one for each event: hypothesis leaves rules out of whole examples, and
    # what is wanted here is that everything meets everything.

    @rule(
        event=st.sampled_from(
            ("join",) * 6 + ("renew",) * 6 + ("grant",) * 3
            + ("steal", "evict", "retire", "delete", "ban", "ban", "unban", "unban", "unban", "pass_by")
            + ("send",) * 4 + ("fetch",) * 7 + ("cancel",)
            + ("rotate",) * 5 + ("lose_key", "lose_key", "seal", "seal", "deliver", "again")
            + ("challenge", "challenge", "answer")
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
        if event in BY_KEYS:
            return BY_KEYS[event](self, nth)
        if event == "join" or not self.known:
            self.join(chip, nth)
            return None
        node = sorted(self.known)[nth % len(self.known)]
        if event in BY_NODE:
            return BY_NODE[event](self, node, nth)
        if event == "renew":
            return self.renew(node)
        if event == "steal":
            return self.steal(node)
        if event == "grant":
            return self.grant(node, named)
        return self.put_out(node, _VERBS[event])

    # Machines

    def join(self, chip: str | None, nth: int) -> str:
        """A machine attests: anew, or, if its chip is bound, as the node that it is; with any kinds or few."""
        machine = self.bench.machine()
        kinds = ONLY_DIAG if nth % 3 == 0 else None
        script = Script(rekey=True, kinds=kinds)
        if chip is not None:
            script = script.but(bind=chip, subjects=(("ek", chip),))
        request = machine.request(script.encode(), attestor="scripted")
        answer = self.ask(request)
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
        node = self.joined(machine, chip, answer, expected, granted)
        self.known[node].request, self.known[node].kinds = request, kinds
        return node

    def _granted(self, chip: str | None) -> str | None:
        node, until = self.grants.get(chip or "", ("", -1))
        return node if self.hours < until else None

    def joined(
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
        self.keys.issued_by_active(node.certificate)
        self.known[node.id] = Known("adopting", chip, node, self.hours + LIFE_H, b"")
        if chip is not None:
            self.bound[chip] = node.id
        return node.id

    def renew(self, node: str) -> None:
        """A node renews from its current certificate."""
        if not node:
            return
        known, machine = self.known[node], self.bench.machine()
        request = known.node.renewal(machine)
        answer = self.ask(request)
        may = known.state in LIVE and not known.revoked and self.hours < known.expires_h
        assert answer["outcome"] == ("joined" if may else "refused"), (answer, known)
        if may:
            assert answer["joined"]["nodeId"] == node
            self.happened["renewed"] += 1
            known.older.append(known.node)
            known.ends.append(known.expires_h)
            known.node, known.state = Node.of(machine, answer), "active"
            known.expires_h, known.request = self.hours + LIFE_H, request
            self.keys.issued_by_active(known.node.certificate)

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
        self.do(self.commands.check(self.bench))
        self.keys.check(self.hours)

    def teardown(self) -> None:
        """The journal explains what there is."""
        if hasattr(self, "bench"):
            self.do(self.commands.check_events(self.bench))
            self.do(explained(self.dsn))
            self.do(self._close())

    async def _close(self) -> None:
        name = await self.bench.one("SELECT current_database()")
        await self.bench.run(f'ALTER DATABASE "{name}" RESET watchword.clock_shift')
        await self._stack.aclose()
        await self.store.close()


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
            assert Life.happened["not opened"], Life.happened
        finally:
            loop.run_until_complete(context.__aexit__(None, None, None))
