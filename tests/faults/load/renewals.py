"""Nodes that renew, each renewal with a fresh key; and what ends some of them: a stolen key, a ban.

What will become of a node is drawn when it joins, so that the judge knows: a node that ends without
a thief or an operator is a finding, and so is one that goes on after them.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.faults.judge.documents import parts_with_lengths
from tests.faults.judge.ledger import EVICTED, JOINED, REFUSED
from tests.faults.load.envelope import Envelope, Machine, PrivateKey, make_request, plaintext, uuid7
from tests.faults.load.kinds import Send, Supplies, as_send

_LABEL = b"watchword renew v1"
_FORM = b"renew/1"

_LIVES = "lives"
_FATES = (_LIVES,) * 8 + ("stolen", "banned")
_ENDED = frozenset(("renew:node-state", "join:banned"))
"""Why a node that has ended does not renew."""


@dataclass(slots=True)
class Node:
    """A node as its machine knows it: the key, and the certificate in force."""

    supplies: Supplies
    machine: Machine
    id: str
    certificate: bytes
    renewals: int
    """How many are still to come."""
    fate: str

    def go_on(self) -> Iterator[Send]:
        """Renew, or meet what was drawn for this node."""
        if self.renewals > 0:
            self.renewals -= 1
            yield from self._renew()
            if self.supplies.rng.random() < 0.3:
                yield self._wrong()
            return
        match self.fate:
            case "stolen":
                yield from self._stolen()
            case "banned":
                yield from self._banned()
            case _:
                pass

    def _renew(self) -> Iterator[Send]:
        machine = Machine()

        def renewed(told: Mapping[str, Any]) -> Iterator[Send]:
            self.machine, self.certificate = machine, leaf_of(told)
            return self.go_on()

        yield self._send("renewal", machine, {JOINED}, joined=renewed)

    def _stolen(self) -> Iterator[Send]:
        """Renew twice from one certificate, with two keys: one comes through, and both are worth nothing then."""
        self.supplies.ends[self.id] = EVICTED
        thieves = (Machine(), Machine())

        def renewed(told: Mapping[str, Any]) -> Iterator[Send]:
            # The other one may not have come yet: until it does this is a node as any other.
            was = next(one for one in thieves if one.spki_sha256 == _spki_of(leaf_of(told)))
            self.machine, self.certificate = was, leaf_of(told)
            yield self._send("renewal-of-thief", Machine(), {JOINED, REFUSED}, _ENDED)

        for thief in thieves:
            yield self._send(
                "stolen",
                thief,
                {JOINED, REFUSED},
                _ENDED | {"renew:key-conflict"},
                joined=renewed,
            )

    def _banned(self) -> Iterator[Send]:
        """Renew while an operator bans this very machine, and after it."""
        self.supplies.to_ban.append(self.id)
        # From the first certificate only one key may come, or it would be theft.
        machine = Machine()
        for _ in range(2):
            # One CSR twice: the second asks for the admission of the first, which is worth nothing after a ban.
            reasons = _ENDED | {"join:csr-reused"}
            yield self._send("renewal-of-banned", machine, {JOINED, REFUSED}, reasons)

    def _wrong(self) -> Send:
        """Return a renewal that nobody may be given."""
        kind = self.supplies.rng.choice(("signature", "unknown-certificate", "moved"))
        machine = Machine()
        match kind:
            case "signature":
                return self._send(kind, machine, {REFUSED}, {f"renew:{kind}"}, signs=Machine().key)
            case "unknown-certificate":
                return self._send(kind, machine, {REFUSED}, {f"renew:{kind}"}, another=bytes(32))
            case _:
                # Signed for another CSR.
                return self._send(kind, machine, {REFUSED}, {"renew:signature"}, csr=Machine())

    def _send(
        self,
        kind: str,
        machine: Machine,
        outcomes: set[str],
        reasons: set[str] | frozenset[str] = frozenset(),
        *,
        joined: Any = None,  # noqa: ANN401 - a `Then`
        signs: PrivateKey | None = None,
        another: bytes | None = None,
        csr: Machine | None = None,
    ) -> Send:
        self.supplies.csr_keys[machine.csr_sha256] = machine.spki_sha256
        named = tbs_sha256(self.certificate) if another is None else another
        request_id = uuid7()
        text = _LABEL + parts_with_lengths(named, (csr or machine).csr_sha256, request_id.encode())
        spki = self.machine.spki
        evidence = parts_with_lengths(_FORM, named, spki, signed(signs or self.machine.key, text))
        envelope = Envelope(attestor="renew", kind="renew", request_id=request_id)
        request = make_request(machine, plaintext(evidence), self.supplies.encryption, envelope)
        return as_send(
            kind,
            request,
            outcomes,
            set(reasons),
            node=self.id,
            after_s=self.supplies.rng.uniform(0.0, 2.0),
            elsewhere=True,
            joined=joined,
        )


def renewing(supplies: Supplies) -> Iterator[Send]:
    """Join, and renew up to three times, a second or two after each answer."""
    machine = Machine()
    token = supplies.rng.choice(supplies.tokens.large)
    renewals, fate = supplies.rng.choice((1, 1, 2, 3)), supplies.rng.choice(_FATES)

    def joined(told: Mapping[str, Any]) -> Iterator[Send]:
        return Node(supplies, machine, told["nodeId"], leaf_of(told), renewals, fate).go_on()

    request = supplies.show(machine, token)
    yield as_send("renewing", request, {JOINED}, token=token, joined=joined)


def leaf_of(told: Mapping[str, Any]) -> bytes:
    """Return the certificate that a machine was given, DER."""
    return base64.b64decode(told["chain"][0])


def tbs_sha256(certificate: bytes) -> bytes:
    """Return what names a certificate."""
    return sha256(x509.load_der_x509_certificate(certificate).tbs_certificate_bytes).digest()


def _spki_of(certificate: bytes) -> bytes:
    public = x509.load_der_x509_certificate(certificate).public_key()
    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def signed(key: PrivateKey, text: bytes) -> bytes:
    """Return the signature of a node's key: ECDSA with SHA-256, or Ed25519."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(text)
    return key.sign(text, ec.ECDSA(SHA256()))
