"""Renewing a key that is in the TPM: the next key is made there too, and certified by the attestation key."""

import asyncio
from dataclasses import dataclass, field

from watchword.handlers.attestors.tpm.prover import Chip
from watchword.handlers.attestors.tpm.statement import KeyProof, qualifying_text


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a renewal of a key in the TPM shows."""

    signature: bytes = field(repr=False)
    """The current key's, over the renewal's text: ECDSA with SHA-256."""
    proof: bytes = field(repr=False)
    """A `KeyProof` of the next key."""


class KeysInTpm:
    """The node's keys in one TPM. Every method raises `NoEvidence` where it is away or does not know a key."""

    def __init__(self, chip: Chip) -> None:
        """Take the TPM; it is opened when it is needed."""
        self._chip = chip

    def make(self) -> tuple[bytes, bytes]:
        """Return a fresh key's TSS2 PRIVATE KEY, and a CSR (DER) that it has signed."""
        with self._chip.opened() as session:
            return session.make_node_key()

    async def csr(self, current_pem: bytes) -> bytes:
        """Return a CSR (DER) of the current key; the key is in a TSS2 PRIVATE KEY."""
        return await asyncio.to_thread(self._csr, current_pem)

    async def sign(self, current_pem: bytes, text: bytes) -> bytes:
        """Return the current key's signature of a text; the key is in a TSS2 PRIVATE KEY."""
        return await asyncio.to_thread(self._signed, current_pem, text)

    async def vouch(self, current_pem: bytes, next_pem: bytes, text: bytes) -> Vouched:
        """Sign a renewal's text with the current key, and have the next one certified for it.

        Both keys are in TSS2 PRIVATE KEYs. A thread works: a discrete TPM takes its time.
        """
        return await asyncio.to_thread(self._vouched, current_pem, next_pem, text)

    def _csr(self, current_pem: bytes) -> bytes:
        with self._chip.opened() as session:
            return session.csr(current_pem)

    def _signed(self, current_pem: bytes, text: bytes) -> bytes:
        with self._chip.opened() as session:
            return session.sign(current_pem, text)

    def _vouched(self, current_pem: bytes, next_pem: bytes, text: bytes) -> Vouched:
        with self._chip.opened() as session:
            signature = session.sign(current_pem, text)
            said = session.certify(next_pem, qualifying_text(text))
            return Vouched(signature, KeyProof(session.attestation_key(), said).encode())
