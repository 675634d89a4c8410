"""Shows a machine's TPM, and has it answer a challenge: the machine's half of `tpm`.

What a TPM is asked stands here; how it is reached does not (`Chip`).
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import structlog

from watchword.handlers.attestors.tpm.evidence import (
    MAX_INTERMEDIATES,
    MAX_LOG_BYTES,
    Certification,
    TpmAnswer,
    TpmChallenge,
    TpmEvidence,
)
from watchword.handlers.attestors.tpm.quote import qualifying
from watchword.handlers.prover import NoEvidence
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Endorsement:
    """An endorsement key as its chip shows it: TPM2B_PUBLIC, certificate (may be empty), CAs below the vendor's."""

    area: bytes
    certificate: bytes = b""
    intermediates: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Quotation:
    """TPMS_ATTEST, TPMT_SIGNATURE, and the values of the quoted PCRs in the order of the selection."""

    attest: bytes
    signature: bytes
    values: bytes


class ChipSession(Protocol):
    """A TPM with its endorsement and attestation keys at hand. Every method raises `NoEvidence`."""

    def endorsement(self) -> Endorsement:
        """Return the endorsement key."""
        ...

    def attestation_key(self) -> bytes:
        """Return the attestation key's TPM2B_PUBLIC."""
        ...

    def activate(self, id_object: bytes, encrypted_secret: bytes) -> bytes:
        """Return what a credential holds (TPM 2.0 Library, Part 3, 12.5)."""
        ...

    def quote(self, banks: tuple[str, ...], pcrs: tuple[int, ...], extra: bytes) -> Quotation:
        """Return a quote over PCRs of the first of these banks that the TPM has, else of its best."""
        ...

    def certify(self, key_pem: bytes, extra: bytes) -> Certification:
        """Return what the attestation key says of a key in this TPM (Part 3, 18.2)."""
        ...

    def make_node_key(self) -> tuple[bytes, bytes]:
        """Make a key in this TPM; return its TSS2 PRIVATE KEY and a CSR (DER) that it has signed."""
        ...

    def csr(self, key_pem: bytes) -> bytes:
        """Return a CSR (DER) that a key which `make_node_key` made has signed."""
        ...

    def sign(self, key_pem: bytes, text: bytes) -> bytes:
        """Return the signature (ECDSA with SHA-256, DER) of a key that `make_node_key` made."""
        ...


class Chip(Protocol):
    """The TPM of this machine."""

    def opened(self) -> AbstractContextManager[ChipSession]:
        """Work with it for a while, and leave nothing in it; raises `NoEvidence`."""
        ...


class TpmProver:
    """Proves the TPM, and the node's key where that is in it."""

    id = "tpm"

    def __init__(
        self,
        chip: Chip,
        *,
        log: Callable[[], bytes] = lambda: b"",
        node_key: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """Take the TPM, what returns the firmware's event log (empty: none), and the node's key in the TPM (PEM)."""
        self._chip = chip
        self._event_log = log
        self._node_key = node_key

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the keys and certificates.

        Raises:
            NoEvidence: the TPM is away, or busy for longer than it is worth waiting for.
        """
        del csr_sha256, role
        return await asyncio.to_thread(self._shown)

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return the activated secret, the quote, and the certification of the node's key.

        Raises:
            NoEvidence: as above, or the challenge is for another TPM.
        """
        del role
        try:
            asked = TpmChallenge.decode(challenge)
        except SchemaError:
            message = "this is no challenge of tpm"
            raise NoEvidence(message) from None
        return await asyncio.to_thread(self._answered, asked, qualifying(challenge, csr_sha256))

    def _shown(self) -> bytes:
        with self._chip.opened() as session:
            return _evidence(session, None)

    def _answered(self, asked: TpmChallenge, extra: bytes) -> bytes:
        log = self._event_log()
        if len(log) > MAX_LOG_BYTES:
            _log.warning("tpm_event_log_too_large", size=len(log), limit=MAX_LOG_BYTES)
            log = b""
        node_key = self._node_key()
        with self._chip.opened() as session:
            secret = session.activate(asked.id_object, asked.encrypted_secret)
            quoted = session.quote(asked.banks, asked.pcrs, extra)
            said = None if node_key is None else session.certify(node_key, extra)
            answer = TpmAnswer(secret, quoted.attest, quoted.signature, quoted.values, log, said)
            return _evidence(session, answer)


def _evidence(session: ChipSession, answer: TpmAnswer | None) -> bytes:
    ek = session.endorsement()
    return TpmEvidence(
        ek.area,
        ek.certificate,
        ek.intermediates[:MAX_INTERMEDIATES],
        session.attestation_key(),
        answer,
    ).encode()
