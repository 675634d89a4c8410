"""What a machine sends, and what the vendor signs.

The evidence is three length-prefixed parts: the vendor's id, the asset tag, and an Ed25519 signature of 64 bytes
(RFC 8032) over `acme-asset v1`, role, tag and the SHA-256 of the CSR, each behind its length.
"""

import re
from dataclasses import dataclass

from watchword.handlers.attestor import Role, SchemaError, length_prefixed, read_length_prefixed

MOST_BYTES = 256
_VENDOR = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_TAG = re.compile(r"[A-Z]{2,8}-[0-9]{6}", re.ASCII)


class Malformed(Exception):
    """The bytes are no evidence of this attestor."""


@dataclass(frozen=True)
class Evidence:
    """What the bytes say. All of it is unproven."""

    vendor: str
    tag: str
    signature: bytes


def signed_text(role: Role, tag: str, csr_sha256: bytes) -> bytes:
    """Return what the vendor signs for one machine, one role and one CSR."""
    return length_prefixed(b"acme-asset v1", role.encode(), tag.encode(), csr_sha256)


def encode(vendor: str, tag: str, signature: bytes) -> bytes:
    """Return evidence as it is sent."""
    return length_prefixed(vendor.encode(), tag.encode(), signature)


def decode(payload: bytes) -> Evidence:
    """Return what a machine sent.

    Raises:
        Malformed: it is anything but the one encoding of three parts within their bounds.
    """
    if len(payload) > MOST_BYTES:
        raise Malformed
    try:
        vendor, tag, signature = read_length_prefixed(payload, 3)
        found = Evidence(vendor.decode("ascii"), tag.decode("ascii"), signature)
    except (SchemaError, UnicodeDecodeError):
        raise Malformed from None
    if not (
        _VENDOR.fullmatch(found.vendor) and _TAG.fullmatch(found.tag) and len(signature) == 64  # noqa: PLR2004 - Ed25519
    ):
        raise Malformed
    return found
