"""The digests by which an endorsement key is known."""

from hashlib import sha256

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.attestors.tpm.structures import Public


def ek_sha256(ek: Public) -> bytes:
    """Return the 32 bytes by which an endorsement key is enrolled, bound and banned: over its TPMT_PUBLIC."""
    return sha256(ek.raw).digest()


def ek_key_sha256(ek: Public) -> bytes:
    """Return the 32 bytes that name the endorsement key itself, over its SubjectPublicKeyInfo.

    A machine that tells other attributes of its key has another `ek_sha256`, and still activates credentials;
    by this it stays the one chip that it is.
    """
    return sha256(ek.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
