"""What a machine sends in each round, and what its key signs.

Round one: `serial` and the serial number. Round two: `proof` and an Ed25519 signature of 64 bytes over `acme-rack v1`, role,
the SHA-256 of the CSR and the nonce. Each part is behind its length.
"""

import re
from dataclasses import dataclass

from watchword.handlers.attestor import Role, SchemaError, length_prefixed, read_length_prefixed

NONCE_BYTES = 32
_MOST_BYTES = 256
_SERIAL = re.compile(rb"R[0-9]{2}-[0-9]{4}")


class Malformed(Exception):
    """The bytes are no evidence of this attestor."""


@dataclass(frozen=True)
class Serial:
    """Round one."""

    serial: str


@dataclass(frozen=True)
class Proof:
    """Round two."""

    signature: bytes


def signed_text(role: Role, csr_sha256: bytes, nonce: bytes) -> bytes:
    """Return what the machine's key signs."""
    return length_prefixed(b"acme-rack v1", role.encode(), csr_sha256, nonce)


def encode(found: Serial | Proof) -> bytes:
    """Return evidence as it is sent."""
    if isinstance(found, Serial):
        return length_prefixed(b"serial", found.serial.encode())
    return length_prefixed(b"proof", found.signature)


def decode(payload: bytes) -> Serial | Proof:
    """Return what a machine sent.

    Raises:
        Malformed: it is neither of the two.
    """
    if len(payload) > _MOST_BYTES:
        raise Malformed
    try:
        kind, value = read_length_prefixed(payload, 2)
    except SchemaError:
        raise Malformed from None
    if kind == b"serial" and _SERIAL.fullmatch(value):
        return Serial(value.decode())
    if kind == b"proof" and len(value) == 64:  # noqa: PLR2004 - Ed25519
        return Proof(value)
    raise Malformed
