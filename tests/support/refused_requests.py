"""Requests that are refused, each for a reason that is known beforehand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from uuid_utils.compat import uuid7

from watchword.handlers.attestors.join_token.evidence import encode
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.schemas.canonical import b64
from watchword.schemas.requests import JoinRequest
from watchword.streams.simulator.fleet import Machine, SealTo, Token


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request of one kind has; the rest is as it should be."""

    attestor: str
    payload: bytes = b"junk"
    role: str = "node"
    kid: str | None = None
    """Another key id than the one that it is sealed to."""
    claims: bytes = b""
    is_moved: bool = False
    """Whether the evidence was sealed for another CSR."""

    def request(self, machine: Machine, seal_to: SealTo) -> bytes:
        """Return the canonical bytes of the request of a machine."""
        unsealed = JoinRequest(
            version=1,
            kind="join",
            request_id=str(uuid7()),
            attestor=self.attestor,
            role=self.role,  # type: ignore[arg-type]
            csr=b64(machine.csr),
            encryption_key_id=self.kid or seal_to.kid,
            sealed=UNSEALED,
            state=None,
            reply_key=None,
        )
        another = bytes(32) if self.is_moved else None
        return seal_evidence(
            unsealed, seal_to.public, self.payload, self.claims, csr_sha256=another
        ).write()


def kinds(known: Token, used_up: Token) -> dict[str, Ask]:
    """Return a way to be refused for each of thirteen reasons, by `attestor:reason`."""
    nobody = Token.new()
    unknown_image = encode(nobody.id, nobody.secret)
    return {
        "join-token:malformed": Ask("join-token"),
        "join-token:unknown-token": Ask("join-token", encode(nobody.id, nobody.secret)),
        "join-token:bad-secret": Ask("join-token", encode(known.id, bytes(32))),
        "join-token:used-up": Ask("join-token", encode(used_up.id, used_up.secret)),
        "image:malformed": Ask("image"),
        "image:unknown-image": Ask("image", unknown_image),
        "x509pop:malformed": Ask("x509pop"),
        "discovery:malformed": Ask("discovery", role="ramdisk"),
        "join:unseal": Ask("join-token", is_moved=True),
        "join:sealing-key": Ask("join-token", kid="nobodys-key"),
        "join:role-not-listed": Ask("x509pop", role="ramdisk"),
        "join:claims-malformed": Ask("join-token", claims=b"{"),
        "join:unknown-attestor": Ask("no-such-attestor"),
    }


def mixed(
    asks: Mapping[str, Ask], machines: Sequence[Machine], seal_to: SealTo
) -> Iterator[tuple[str, bytes]]:
    """Yield one request for each machine with its reason, the kinds in turn, so that a storm is of all at once."""
    names: Sequence[str] = list(asks)
    for number, machine in enumerate(machines):
        # The first kind is half of it: one loud reason must not hide the others.
        name = names[0] if number % 2 else names[number // 2 % len(names)]
        yield name, asks[name].request(machine, seal_to)
