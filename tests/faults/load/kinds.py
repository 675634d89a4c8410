"""The kinds of requests that are one question and one answer, and what may become of each.

A kind is a function that returns sends; `mix` says how often each comes.
"""

import random
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from tests.faults.judge.ledger import INVALID, JOINED, REFUSED, UNSUPPORTED, Asked, Commands
from tests.faults.load.anchors import Anchors
from tests.faults.load.envelope import (
    EncryptionKey,
    Envelope,
    Machine,
    Request,
    junk,
    make_request,
    plaintext,
    token_evidence,
)
from tests.faults.load.tokens import Token, Tokens

USED_UP = "join-token:used-up"

Then = Callable[[Mapping[str, Any]], "Iterator[Send]"]
"""What a machine does when it hears something: it gets the deferral, or what it was given when it joined."""


@dataclass(frozen=True, slots=True)
class Send:
    """One write of a request, some seconds from now."""

    asked: Asked
    value: bytes = field(repr=False)
    key: bytes
    after_s: float = 0.0
    elsewhere: bool = False
    """Whether it goes to any partition rather than to its key's."""
    partition: int | None = None
    """The partition that it goes to, whatever its key is."""
    well_formed: bool = True
    """Whether a gateway would let it pass."""
    then: Then | None = field(default=None, repr=False)
    """What follows a deferral, if one is to be expected."""
    joined: Then | None = field(default=None, repr=False)
    """What follows an admission, if its answer is in clear."""


@dataclass(slots=True)
class Supplies:
    """What the kinds draw from. `claims` carries canaries."""

    rng: random.Random
    encryption: EncryptionKey
    tokens: Tokens
    anchors: Anchors
    claims: dict[str, object]
    csr_keys: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The SHA-256 of the public key of each CSR, by the CSR's: for the judge."""
    reclaims: deque[tuple[Token, str]] = field(default_factory=deque[tuple[Token, str]])
    """Tokens that may each reclaim one node."""
    to_decide: deque[tuple[bytes, str]] = field(default_factory=deque[tuple[bytes, str]])
    """CSRs that wait for an operator, by their SHA-256, and what the operator will say."""
    to_ban: deque[str] = field(default_factory=deque[str])
    """Nodes that an operator is to ban."""
    ends: dict[str, str] = field(default_factory=dict[str, str])
    """Nodes that are to end, and how."""
    to_tell: deque[tuple[str, str]] = field(default_factory=deque[tuple[str, str]])
    """Nodes that an operator is to tell something, and what kind of thing."""
    commands: Commands = field(default_factory=Commands)

    def show(
        self, machine: Machine, token: Token, *, reply: bool = False, payload: bytes | None = None
    ) -> Request:
        """Return a request in which the machine shows the token."""
        evidence = token_evidence(token.id, token.secret) if payload is None else payload
        self.csr_keys[machine.csr_sha256] = machine.spki_sha256
        return make_request(
            machine, plaintext(evidence, self.claims), self.encryption, Envelope(reply=reply)
        )


Kind = Callable[[Supplies], Iterator[Send]]


def as_send(  # noqa: PLR0913 - what may differ
    kind: str,
    request: Request,
    outcomes: set[str],
    reasons: set[str] | None = None,
    *,
    token: Token | None = None,
    node: str | None = None,
    after_s: float = 0.0,
    elsewhere: bool = False,
    well_formed: bool = True,
    deferral: str | None = None,
    then: Then | None = None,
    joined: Then | None = None,
) -> Send:
    """Return the write of a request, with what may become of it."""
    asked = Asked(
        digest=request.digest,
        kind=kind,
        outcomes=frozenset(outcomes),
        reasons=frozenset(reasons or ()),
        csr_sha256=request.csr_sha256,
        request_id=request.request_id,
        reply_private=request.reply_private,
        token=None if token is None else token.id,
        node=node,
        deferral=deferral,
    )
    return Send(
        asked,
        request.value,
        request.csr_sha256,
        after_s=after_s,
        elsewhere=elsewhere,
        well_formed=well_formed,
        then=then,
        joined=joined,
    )


# Machines that may join


def join(supplies: Supplies) -> Iterator[Send]:
    """Join with a token that never runs out; one in five wants its answer sealed."""
    token = supplies.rng.choice(supplies.tokens.large)
    request = supplies.show(Machine(), token, reply=supplies.rng.random() < 0.2)
    yield as_send("join", request, {JOINED}, token=token)


def single_use(supplies: Supplies) -> Iterator[Send]:
    """Let up to three machines race for one use."""
    if not supplies.tokens.single:  # while no operator can make any
        yield from join(supplies)
        return
    token = supplies.tokens.single.popleft()
    machines = supplies.rng.choice((1, 2, 2, 3))
    outcomes = {JOINED} if machines == 1 else {JOINED, REFUSED}
    for _ in range(machines):
        request = supplies.show(Machine(), token)
        after_s = supplies.rng.choice((0.0, 0.0, 0.01, 0.3))
        yield as_send("single-use", request, outcomes, {USED_UP}, token=token, after_s=after_s)


def few_uses(supplies: Supplies) -> Iterator[Send]:
    """Want one of a few uses that everybody wants."""
    token = supplies.rng.choice(supplies.tokens.few)
    request = supplies.show(Machine(), token)
    yield as_send("few-uses", request, {JOINED, REFUSED}, {USED_UP}, token=token)


def same_csr(supplies: Supplies) -> Iterator[Send]:
    """Send one CSR in two requests, which race for its one admission with a token each."""
    if len(supplies.tokens.single) < 2:
        yield from join(supplies)
        return
    machine = Machine()
    for nth in range(2):
        token = supplies.tokens.single.popleft()
        request = supplies.show(machine, token)
        after_s = supplies.rng.choice((0.0, 0.02, 1.0)) * nth
        yield as_send(
            "same-csr", request, {JOINED}, token=token, after_s=after_s, elsewhere=bool(nth)
        )


def same_key(supplies: Supplies) -> Iterator[Send]:
    """Send two CSRs of one key: one is admitted, the other's key is in use."""
    machine = Machine()
    for each in (machine, machine.twin()):
        token = supplies.rng.choice(supplies.tokens.large)
        request = supplies.show(each, token)
        outcomes = {JOINED, REFUSED}
        yield as_send(
            "same-key", request, outcomes, {"join:key-in-use"}, token=token, elsewhere=True
        )


def being_revoked(supplies: Supplies) -> Iterator[Send]:
    """Show a token that an operator is about to revoke, or has revoked."""
    token = supplies.rng.choice(supplies.tokens.to_revoke)
    request = supplies.show(Machine(), token)
    yield as_send("being-revoked", request, {JOINED, REFUSED}, {"join-token:revoked"}, token=token)


def reclaim(supplies: Supplies) -> Iterator[Send]:
    """Re-key a node; where two may do that to one node they race, and both come through."""
    if not supplies.reclaims:
        yield from join(supplies)
        return
    _, node = supplies.reclaims[0]
    while supplies.reclaims and supplies.reclaims[0][1] == node:
        token, _ = supplies.reclaims.popleft()
        request = supplies.show(Machine(), token)
        yield as_send("reclaim", request, {JOINED}, token=token, node=node, elsewhere=True)


# Machines that are refused


def bad_secret(supplies: Supplies) -> Iterator[Send]:
    """Show a token's id with another secret."""
    token = Token(supplies.rng.choice(supplies.tokens.large).id, secrets.token_bytes(32))
    request = supplies.show(Machine(), token, reply=supplies.rng.random() < 0.2)
    yield as_send("bad-secret", request, {REFUSED}, {"join-token:bad-secret"})


def unknown_token(supplies: Supplies) -> Iterator[Send]:
    """Show a token that nobody made."""
    token = Token(secrets.token_hex(8), secrets.token_bytes(32))
    request = supplies.show(Machine(), token)
    yield as_send("unknown-token", request, {REFUSED}, {"join-token:unknown-token"})


def unusable_token(supplies: Supplies) -> Iterator[Send]:
    """Show a token that was revoked, has expired, is for another role, or expects another machine."""
    tokens = supplies.tokens
    choices = (
        (tokens.revoked, "join-token:revoked"),
        (tokens.expired, "join-token:expired"),
        (tokens.of_sites, "join-token:wrong-role"),
        (tokens.expecting, "join:expect-mismatch"),
    )
    of_kind, reason = supplies.rng.choice(choices)
    token = supplies.rng.choice(of_kind)
    request = supplies.show(Machine(), token)
    yield as_send(reason.partition(":")[2], request, {REFUSED}, {reason}, token=token)


def malformed_token(supplies: Supplies) -> Iterator[Send]:
    """Show something that is no token."""
    token = supplies.rng.choice(supplies.tokens.large)
    request = supplies.show(Machine(), token, payload=b"no token")
    yield as_send("malformed", request, {REFUSED}, {"join-token:malformed"})


def moved_seal(supplies: Supplies) -> Iterator[Send]:
    """Put a seal into an envelope that it was not made for."""
    token = supplies.rng.choice(supplies.tokens.large)
    evidence = plaintext(token_evidence(token.id, token.secret), supplies.claims)
    request = make_request(
        Machine(), evidence, supplies.encryption, Envelope(role="site", sealed_role="node")
    )
    yield as_send("moved-seal", request, {REFUSED}, {"join:unseal"})


# What is not understood


def undecodable(supplies: Supplies) -> Iterator[Send]:
    """Send bytes that are no request, or not the one spelling of a request."""
    if supplies.rng.random() < 0.5:
        value = junk(supplies.rng.choice((1, 40, 3000)))
    else:
        request = supplies.show(Machine(), supplies.rng.choice(supplies.tokens.large))
        value = request.value.replace(b'"role"', b' "role"')
    asked = Asked(
        digest=sha256(value).digest(),
        kind="undecodable",
        outcomes=frozenset((INVALID,)),
        reasons=frozenset(("join:undecodable",)),
        dead_letter=value,
    )
    yield Send(asked, value, secrets.token_bytes(32), elsewhere=True, well_formed=False)


def bad_csr(supplies: Supplies) -> Iterator[Send]:
    """Send a CSR that is none, is signed by nobody, or has a key of a kind that is not accepted."""
    machine = Machine()
    kind = supplies.rng.choice(("csr-malformed", "csr-signature", "weak-key"))
    match kind:
        case "csr-malformed":
            csr = b"\x30\x03" + junk(30)
        case "csr-signature":
            csr = with_another_signature(machine)
        case _:
            machine = Machine(ec.generate_private_key(ec.SECP521R1()))
            csr = machine.csr
    evidence = plaintext(b"evidence", supplies.claims)
    request = make_request(machine, evidence, supplies.encryption, csr=csr)
    yield as_send(kind, request, {INVALID}, {f"join:{kind}"}, well_formed=False)


def with_another_signature(machine: Machine) -> bytes:
    """Return the CSR with one bit of what is signed turned over, where it does not matter to a parser."""
    csr = bytearray(machine.csr)
    # The common name: four random bytes in hexadecimal, which stay printable.
    at = csr.index(b"\x0c\x08") + 2
    csr[at] ^= 0x01
    return bytes(csr)


def unknown_attestor(supplies: Supplies) -> Iterator[Send]:
    """Ask for an attestor that is not there."""
    envelope = Envelope(attestor="not-installed")
    request = make_request(
        Machine(), plaintext(b"evidence", supplies.claims), supplies.encryption, envelope
    )
    yield as_send("unknown-attestor", request, {UNSUPPORTED}, {"join:unknown-attestor"})


def bad_plaintext(supplies: Supplies) -> Iterator[Send]:
    """Seal something that is not a payload and claims."""
    request = make_request(Machine(), b"\xff" * 20, supplies.encryption)
    yield as_send("claims-malformed", request, {INVALID}, {"join:claims-malformed"})
