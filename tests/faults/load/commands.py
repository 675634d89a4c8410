"""Nodes that are told things: each asks for its commands, does each once, and says what became of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.judge.documents import body_of, canonical, parts_with_lengths
from tests.faults.judge.ledger import COMMANDS, JOINED
from tests.faults.load.envelope import Envelope, Machine, make_request, plaintext, uuid7
from tests.faults.load.kinds import Send, Supplies, as_send
from tests.faults.load.renewals import leaf_of, signed, tbs_sha256

KIND = "diag.ping"
_LABEL = b"watchword commands v1"
_FORM = b"commands/1"
_TOLD = 2
_TRIES = 12
"""How often a machine asks at most: an operator may be late, and PostgreSQL away."""


@dataclass(slots=True)
class Told:
    """A node as its machine knows it, with what it has done and not yet said."""

    supplies: Supplies
    machine: Machine
    id: str
    certificate: bytes
    tries: int = 0
    done: dict[str, bool] = field(default_factory=dict[str, bool])
    """Commands that were run, by id, and whether the service has heard of it."""

    def ask(self) -> Iterator[Send]:
        """Ask for commands; tell of those that the service has not heard of."""
        self.tries += 1
        items = [
            {"exitStatus": 0, "id": command, "result": "done"}
            for command, was_heard in self.done.items()
            if not was_heard
        ]
        reports = canonical({"items": items})
        named, request_id = tbs_sha256(self.certificate), uuid7()
        text = _LABEL + parts_with_lengths(
            named, self.machine.csr_sha256, request_id.encode(), reports
        )
        spki = self.machine.spki
        evidence = parts_with_lengths(_FORM, named, spki, reports, signed(self.machine.key, text))
        envelope = Envelope(attestor="command", kind="commands", request_id=request_id, reply=True)
        request = make_request(
            self.machine, plaintext(evidence), self.supplies.encryption, envelope
        )

        def heard(told: Mapping[str, Any]) -> Iterator[Send]:
            for item in items:
                self.done[str(item["id"])] = True
                self.supplies.commands.reported.add(str(item["id"]))
            for token in told["items"]:
                command = body_of(token.encode())["id"]
                self.supplies.commands.heard[command] = self.id
                # What is handed out again is not run again.
                self.done.setdefault(command, False)
            is_over = len(self.done) >= _TOLD and all(self.done.values())
            if not is_over and self.tries < _TRIES:
                yield from self.ask()

        yield as_send(
            "fetch",
            request,
            {COMMANDS},
            node=self.id,
            after_s=self.supplies.rng.uniform(0.3, 2.5),
            elsewhere=True,
            joined=heard,
        )


def told(supplies: Supplies) -> Iterator[Send]:
    """Join as a node that may be told one kind of thing, and be told it twice."""
    machine = Machine()
    token = supplies.rng.choice(supplies.tokens.telling)

    def joined(given: Mapping[str, Any]) -> Iterator[Send]:
        node = Told(supplies, machine, given["nodeId"], leaf_of(given))
        supplies.to_tell.extend([(node.id, KIND)] * _TOLD)
        yield from node.ask()

    request = supplies.show(machine, token)
    yield as_send("told", request, {JOINED}, token=token, joined=joined)
