"""What machines of each kind show, and what they must be granted for it."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.attestors.discovery.evidence import kid_of, sign_assertion
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.join_token.evidence import parse_token
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.prover import Prover
from watchword.schemas.ids import Role
from watchword.streams.simulator import attestor, software_tpm
from watchword.streams.simulator.options import Kind

SITE = "sim"
TOKEN_KINDS = ("inventory.refresh", "diag.*")
DISCOVERY_KINDS = ("inventory.refresh", "disk.wipe")
TPM_KINDS = ("inventory.refresh", "logs.collect")

_LIFE = timedelta(minutes=10)


Making = Callable[[int], Prover | AbstractAsyncContextManager[Prover]]
"""Makes the prover of a machine by its number; perhaps one that lasts as long as it is held."""


@dataclass(frozen=True, slots=True)
class Shows:
    """What a kind of machines shows: `real` makes a prover by the machine's number, `forged` one that proves nothing."""

    real: Making
    forged: Making
    allowed_kinds: tuple[str, ...]
    role: Role = "node"
    waits_for_operator: bool = False

    def proving(self, number: int, *, forged: bool) -> AbstractAsyncContextManager[Prover]:
        """Give the prover of a machine for the time of its join."""
        made = (self.forged if forged else self.real)(number)
        return made if isinstance(made, AbstractAsyncContextManager) else nullcontext(made)


def by_token(text: str) -> Shows:
    """Show a token, or one of its id with another secret."""
    token = parse_token(text)
    wrong = f"ww1.{token.id}.{secrets.token_urlsafe(32)}"
    return Shows(
        lambda _: JoinTokenProver.of_text(text),
        lambda _: JoinTokenProver.of_text(wrong),
        TOKEN_KINDS,
    )


def by_assertion(key: Ed25519PrivateKey) -> Shows:
    """Show what the site's agent asserts, or somebody who has not its key."""
    kid = kid_of(key.public_key().public_bytes_raw())

    def asserting(signer: JwsSigner) -> Callable[[int], Prover]:
        return lambda number: DiscoveryProver(
            lambda csr_sha256: sign_assertion(
                signer,
                site=SITE,
                csr_sha256=csr_sha256,
                macs=(mac_of(number),),
                expires_at=datetime.now(UTC) + _LIFE,
            )
        )

    return Shows(
        asserting(JwsSigner(kid, key)),
        asserting(JwsSigner(kid, Ed25519PrivateKey.generate())),
        DISCOVERY_KINDS,
        role="ramdisk",
        waits_for_operator=True,
    )


def by_vendor(key: Ed25519PrivateKey, run: str) -> Shows:
    """Show what `sim-restricted` believes, under names of this run, or what it does not."""
    other = Ed25519PrivateKey.generate()
    return Shows(
        lambda number: attestor.RestrictedProver(key, f"{run}-{number}"),
        lambda number: attestor.RestrictedProver(other, f"{run}-{number}"),
        attestor.ALLOWED_KINDS,
    )


def by_tpm(enrol: Callable[[bytes], Awaitable[None]]) -> Shows:
    """Show a TPM that was enrolled, or one that nobody knows."""
    return Shows(software_tpm.proving(enrol), software_tpm.proving(None), TPM_KINDS)


def mac_of(number: int) -> str:
    """Return a MAC that may identify a machine: of a run's own, with the prefix of a vendor that there is."""
    return f"3cfdfe{_RUN}{number % 0x10000:04x}"


_RUN = secrets.token_hex(1)
"""Machines of another run have other MACs, mostly: a known one is no newcomer."""

Showing = Mapping[Kind, Shows]
