"""Machines that need more than one request: an operator's word, or the answer to a challenge.

Every try is a request of its own, with a fresh id and fresh evidence; key and CSR stay. What an
operator will say is drawn beforehand, so that the judge knows what may come.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.faults.judge.ledger import DEFERRED, JOINED, REFUSED
from tests.faults.load.anchors import Hardware
from tests.faults.load.envelope import (
    Envelope,
    Machine,
    PrivateKey,
    Request,
    make_request,
    plaintext,
)
from tests.faults.load.kinds import Send, Supplies, as_send

ROUND_LABEL = b"faults two rounds"
"""Stands in front of what a machine signs to answer a challenge of `two-rounds`."""

_NEVER = "nothing"
_WORDS = ("approved",) * 8 + ("rejected",) * 3 + (_NEVER,)
"""What operators say: nothing to one machine in twelve."""

_TRIES = 60
_TRIES_IN_VAIN = 2
_ASKED_AGAIN = 10
"""After so many tries the operator is asked again: what they had said may have expired, unused."""


@dataclass(slots=True)
class Waiting:
    """A machine that an operator has to agree to; it comes again until it is told yes or no."""

    supplies: Supplies
    kind: str
    word: str
    role: str
    csr_sha256: bytes
    show: Callable[[], Request]
    tries: int = 0

    def come(self, after_s: float = 0.0) -> Iterator[Send]:
        """Ask, for the first time or again."""
        self.tries += 1
        outcomes = {DEFERRED}
        if self.word != _NEVER:
            outcomes.add(JOINED if self.word == "approved" else REFUSED)
        reasons = {f"{self.kind}:rejected"}
        yield as_send(
            self.kind,
            self.show(),
            outcomes,
            reasons,
            after_s=after_s,
            deferral="approval",
            then=self._again,
        )

    def _again(self, deferral: Mapping[str, Any]) -> Iterator[Send]:
        del deferral
        if self.word != _NEVER and self.tries % _ASKED_AGAIN == 1:
            self.supplies.to_decide.append((self.csr_sha256, self.word))
        if self.tries < (_TRIES_IN_VAIN if self.word == _NEVER else _TRIES):
            yield from self.come(self.supplies.rng.uniform(0.8, 2.5))


def image(supplies: Supplies) -> Iterator[Send]:
    """Show an image's secret; its second fact is an operator's word."""
    machine, hardware = Machine(), Hardware.new()
    # An operator sees these: they are no secret, and no canary.
    claims = {"productUuid": hardware.uuid, "serial": f"S-{hardware.macs[0]}"}
    shown = plaintext(supplies.anchors.image.evidence, claims)
    envelope = Envelope(attestor="image")

    def show() -> Request:
        return make_request(machine, shown, supplies.encryption, envelope)

    yield from _waiting(supplies, machine, "image", "node", show)


def discovery(supplies: Supplies) -> Iterator[Send]:
    """Boot from the network, and have the site's agent vouch for this key; an operator agrees."""
    machine, hardware = Machine(), Hardware.new()
    envelope = Envelope(attestor="discovery", role="ramdisk")

    def show() -> Request:
        assertion = supplies.anchors.site.vouch(machine.csr_sha256, hardware)
        return make_request(machine, plaintext(assertion), supplies.encryption, envelope)

    yield from _waiting(supplies, machine, "discovery", "ramdisk", show)


def _waiting(
    supplies: Supplies, machine: Machine, kind: str, role: str, show: Callable[[], Request]
) -> Iterator[Send]:
    supplies.csr_keys[machine.csr_sha256] = machine.spki_sha256
    word = supplies.rng.choice(_WORDS)
    return Waiting(supplies, kind, word, role, machine.csr_sha256, show).come()


# Challenges


def two_rounds(supplies: Supplies) -> Iterator[Send]:
    """Answer a challenge with the CSR's own key; one in six answers wrongly, or with a stranger's state."""
    machine = Machine()
    supplies.csr_keys[machine.csr_sha256] = machine.spki_sha256
    answers = supplies.rng.choice(("right",) * 10 + ("wrong", "another-csr"))
    envelope = Envelope(attestor="two-rounds")

    def answer(deferral: Mapping[str, Any]) -> Iterator[Send]:
        challenge = base64.b64decode(deferral["challenge"])
        state = base64.b64decode(deferral["state"])
        who = machine
        if answers == "another-csr":
            who = Machine()
            supplies.csr_keys[who.csr_sha256] = who.spki_sha256
        said = ROUND_LABEL + challenge + who.csr_sha256
        proof = sign(who.key, said + b"!" if answers == "wrong" else said)
        request = make_request(
            who, plaintext(proof, supplies.claims), supplies.encryption, envelope, state=state
        )
        yield as_send(
            f"second-round-{answers}",
            request,
            {JOINED if answers == "right" else REFUSED},
            {"two-rounds:wrong-answer" if answers == "wrong" else "two-rounds:wrong-state"},
            elsewhere=True,
        )

    request = make_request(
        machine, plaintext(b"hello", supplies.claims), supplies.encryption, envelope
    )
    outcomes = {DEFERRED} | ({JOINED} if answers == "right" else set())
    # Joined: a copy of the first round that comes after the second one was admitted.
    yield as_send("first-round", request, outcomes, deferral="challenge", then=answer)


def sign(key: PrivateKey, data: bytes) -> bytes:
    """Return a signature by a machine's key."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(data, ec.ECDSA(SHA256()))
    return key.sign(data)


# An attestor's own SQL


def own_sql(supplies: Supplies) -> Iterator[Send]:
    """Ask an attestor that writes a note in the join's own transaction, and then admits or refuses."""
    machine = Machine()
    supplies.csr_keys[machine.csr_sha256] = machine.spki_sha256
    word = supplies.rng.choice((b"admit", b"refuse"))
    request = make_request(
        machine, plaintext(word, supplies.claims), supplies.encryption, Envelope(attestor="own-sql")
    )
    outcome = JOINED if word == b"admit" else REFUSED
    yield as_send("own-sql", request, {outcome}, {"own-sql:no"})
