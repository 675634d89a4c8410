"""Nonsense that reaches workers: straight on Kafka, or in so good a form that gateways take it.

Seals and CSRs are made once and sent again and again under other ids, which opens no seal: a flood that had to
seal each time would come no faster than joins do.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric import ec

from tests.faults.judge.documents import canonical
from tests.faults.judge.ledger import INVALID, UNSUPPORTED, Asked
from tests.faults.load.envelope import Envelope, Machine, Request, make_request, plaintext, uuid7
from tests.faults.load.kinds import Send, Supplies, as_send, with_another_signature

_CSRS = 32
"""So many that every partition has its share."""
_LARGE = 256 * 1024
_LARGE_ONE_IN = 500


class Junk:
    """Makes nonsense, a piece at a time."""

    def __init__(self, supplies: Supplies) -> None:
        """Make what pieces are made from."""
        self._rng = supplies.rng
        nowhere = Envelope(attestor="not-installed")

        def request(machine: Machine, csr: bytes | None = None) -> Request:
            shown = plaintext(b"evidence")
            return make_request(machine, shown, supplies.encryption, nowhere, csr=csr)

        machines = [Machine() for _ in range(_CSRS)]
        self.good = [request(machine) for machine in machines]
        """In good form, for an attestor that is not there."""
        self.bad_csr = {
            "csr-malformed": request(machines[0], b"\x30\x03" + os.urandom(30)),
            "csr-signature": request(machines[0], with_another_signature(machines[0])),
            "weak-key": request(Machine(ec.generate_private_key(ec.SECP521R1()))),
        }

    def readable(self) -> Send:
        """Return a request that a gateway takes, and for which there is no attestor."""
        request = _again(self._rng.choice(self.good))
        return as_send("flood-attestor", request, {UNSUPPORTED}, {"join:unknown-attestor"})

    def any(self) -> Send:
        """Return a record of any kind that workers have to turn down."""
        make = self._rng.choice((self.readable, self._bad_csr, self._undecodable))
        return make()

    def _bad_csr(self) -> Send:
        reason = self._rng.choice(list(self.bad_csr))
        request = _again(self.bad_csr[reason])
        return as_send(f"flood-{reason}", request, {INVALID}, {f"join:{reason}"})

    def _undecodable(self) -> Send:
        good = _again(self._rng.choice(self.good)).value
        changes: tuple[Callable[[bytes], bytes], ...] = (
            lambda _: os.urandom(60),
            lambda one: one.replace(b'"version":1', b'"version":2'),
            lambda one: one.replace(b'"kind"', b'"kinD"'),
            lambda one: one[:-1] + b',"version":1}',
            lambda one: canonical({**json.loads(one), "zeal": 1}),
            lambda one: one + b" ",
        )
        value = self._rng.choice(changes)(good)
        if self._rng.randrange(_LARGE_ONE_IN) == 0:
            value = os.urandom(_LARGE)
        asked = Asked(
            digest=sha256(value).digest(),
            kind="flood-undecodable",
            outcomes=frozenset((INVALID,)),
            reasons=frozenset(("join:undecodable",)),
            dead_letter=value,
        )
        return Send(asked, value, secrets.token_bytes(32))

    def many(self, count: int) -> Iterator[Send]:
        """Yield so many pieces of any kind."""
        for _ in range(count):
            yield self.any()


def _again(request: Request) -> Request:
    """Return the same request under another id."""
    request_id = uuid7()
    value = request.value.replace(request.request_id.encode(), request_id.encode())
    return Request(value, sha256(value).digest(), request_id, request.csr_sha256, None)
