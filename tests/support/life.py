"""What a machine of the life of a deployment knows of nodes, and its rules about keys and commands."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cryptography import x509

from tests.support.attestors.scripted import Script
from tests.support.joins import Bench, Machine, certificate_of
from tests.support.life_commands import LifeCommands
from tests.support.life_keys import KINDS, LifeKeys
from tests.support.renewals import Node
from watchword.handlers.operators.keys import count_valid
from watchword.handlers.store.connection import Database
from watchword.schemas.canonical import unb64

LIVE = frozenset(("adopting", "active"))

HAPPENS = (
    "joined", "re-keyed", "reclaimed", "renewed", "stolen", "evict", "retire", "delete", "banned", "unbanned",
    "sent", "denied", "handed out", "done", "cancelled", "stopped: node-state", "stopped: not-allowed",
    *(f"{kind} {what}" for kind in KINDS for what in ("prepared", "activated")),
    "needed key kept", "key retired", "key compromised", "opened late", "answered late", "said again",
)  # fmt: skip
"""What has to have happened in a few thousand steps."""

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
    request: bytes = field(repr=False)
    """What its current certificate was the answer to."""
    kinds: tuple[str, ...] | None = None
    """What it may be told."""
    revoked: bool = False
    older: list[Node] = field(default_factory=list[Node])
    """Certificates that were renewed, newest last, with their ends."""
    ends: list[int] = field(default_factory=list[int])


@dataclass
class Sealed:
    """A request of a machine that is on its way."""

    machine: Machine
    request: bytes = field(repr=False)


@dataclass
class Challenged:
    """A machine that has to answer, when it was asked, and by which key."""

    machine: Machine
    state: bytes = field(repr=False)
    hours: int
    kid: str


class KeysAndCommands:
    """The part of the life of a deployment that is about its keys, and about what its nodes are told."""

    loop: asyncio.AbstractEventLoop
    dsn: str
    happened: Counter[str]
    """What the steps did, over all examples: a machine that does nothing breaks nothing."""
    bench: Bench
    store: Database
    keys: LifeKeys
    commands: LifeCommands
    known: dict[str, Known]
    hours: int
    sealed: list[Sealed]
    challenged: list[Challenged]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the test's own loop."""
        return self.loop.run_until_complete(work)

    def ask(self, request: bytes) -> dict[str, Any]:
        """Return the answer to one request."""
        [answer] = self.do(self.bench.ask(request))
        return answer

    def joined(
        self,
        machine: Machine,
        chip: str | None,
        answer: dict[str, Any],
        expected: str | None,
        granted: str | None,
    ) -> str:
        """Take an admission into the model; return the node's id."""
        raise NotImplementedError

    # The clock

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

    # Nodes, and machines that are late

    def fetch(self, node: str, nth: int) -> None:
        """A node asks what it is to do, and perhaps says what it has done."""
        asking = self.commands.fetch(
            self.bench, node, self.known[node], self.hours, reports=nth % 3 != 0
        )
        self.happened.update(self.do(asking))

    def again(self, node: str, nth: int) -> None:
        """The bytes that a node's certificate was the answer to come once more: the same answer, by whichever key by now."""
        del nth
        known = self.known[node]
        answer = self.ask(known.request)
        assert certificate_of(answer) == known.node.certificate
        leaf, *above = [
            x509.load_der_x509_certificate(unb64(der)) for der in answer["joined"]["chain"]
        ]
        if self.keys.knows_issuer(leaf):  # not taken away, because somebody else has it
            leaf.verify_directly_issued_by(above[0])
        self.happened["said again"] += 1

    def seal(self, nth: int) -> None:
        """A machine sends a request that takes its time to come."""
        del nth
        machine = self.bench.machine()
        request = machine.request(Script().encode(), attestor="scripted")
        self.sealed.append(Sealed(machine, request))

    def deliver(self, nth: int) -> None:
        """A request comes that was sealed to the key of then."""
        if not self.sealed:
            return
        late = self.sealed.pop(nth % len(self.sealed))
        answer = self.ask(late.request)
        if not self.keys.opens(late.machine.key_id, self.hours):
            assert answer["outcome"] == "refused"
            self.happened["not opened"] += 1
            return
        assert answer["outcome"] == "joined"
        self.happened["opened late"] += 1
        node = self.joined(late.machine, None, answer, None, None)
        self.known[node].request = late.request

    def challenge(self, nth: int) -> None:
        """A machine is asked something."""
        del nth
        machine = self.bench.machine()
        answer = self.ask(machine.request(Script(rounds=2).encode(), attestor="scripted"))
        assert answer["outcome"] == "deferred", answer
        state = unb64(answer["deferred"]["state"])
        self.challenged.append(Challenged(machine, state, self.hours, self.keys.active_challenge))

    def answer(self, nth: int) -> None:
        """A machine answers, and has to have been asked by a key that is there, and not long ago."""
        if not self.challenged:
            return
        asked = self.challenged.pop(nth % len(self.challenged))
        script = Script(rounds=2).encode()
        request = replace(
            asked.machine, key_id=self.bench.key_id, seal_to=self.bench.seal_to
        ).request(script, attestor="scripted", state=asked.state)
        answer = self.ask(request)
        if asked.hours != self.hours or ("challenge", asked.kid) not in self.keys.known:
            assert answer["outcome"] == "failed", answer
            return
        assert answer["outcome"] == "joined", answer
        self.happened["answered late"] += 1
        node = self.joined(asked.machine, None, answer, None, None)
        self.known[node].request = request

    # Operators

    def rotate(self, nth: int) -> None:
        """An operator goes on with a kind of keys; workers, the signer and agents follow."""
        valid = {key: self.do(count_valid(self.store, key)) for key in self.keys.valid_keys()}
        self.happened[self.keys.change(nth, self.hours, valid)] += 1
        self.keys.use(self.bench)

    def lose_key(self, nth: int) -> None:
        """An operator replaces a key that somebody else has; what is on its way to it is lost."""
        self.happened[self.keys.replace_compromised(nth, self.hours)] += 1
        self.keys.use(self.bench)

    def send(self, node: str, nth: int) -> None:
        """An operator tells a node something."""
        sending = self.commands.send(self.store, node, self.known[node], nth, self.hours)
        self.happened[self.do(sending)] += 1

    def cancel(self, nth: int) -> None:
        """An operator takes a command back."""
        if (happened := self.do(self.commands.cancel(self.store, nth))) is not None:
            self.happened[happened] += 1


BY_KEYS: dict[str, Callable[[KeysAndCommands, int], None]] = {
    "rotate": KeysAndCommands.rotate,
    "lose_key": KeysAndCommands.lose_key,
    "cancel": KeysAndCommands.cancel,
    "seal": KeysAndCommands.seal,
    "deliver": KeysAndCommands.deliver,
    "challenge": KeysAndCommands.challenge,
    "answer": KeysAndCommands.answer,
}
BY_NODE: dict[str, Callable[[KeysAndCommands, str, int], None]] = {
    "send": KeysAndCommands.send,
    "fetch": KeysAndCommands.fetch,
    "again": KeysAndCommands.again,
}

EMPTY = """
DELETE FROM node_commands; DELETE FROM attempts;
DELETE FROM reclaim_grants; DELETE FROM node_certs; DELETE FROM nodes; DELETE FROM tokens; DELETE FROM pools; DELETE FROM sites;
DELETE FROM admission_claims; DELETE FROM node_subjects; DELETE FROM node_bindings; DELETE FROM attestation_uses; DELETE FROM bans;
DELETE FROM inbox; DELETE FROM journal; DELETE FROM refusals; DELETE FROM refusal_slots; DELETE FROM audit_log;
DELETE FROM tenants WHERE id <> 'root'
"""
"""Deletes everything of a life but root."""
