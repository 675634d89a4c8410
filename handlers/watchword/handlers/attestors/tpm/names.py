"""The digests by which an endorsement key and an attestation key are known."""

from dataclasses import dataclass
from hashlib import sha256

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.attestors.tpm.structures import Public


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a TPM's two keys, each hashed once."""

    ek: bytes
    """See `ek_sha256`."""
    chip: str
    """See `ek_key_sha256`; hexadecimal digits."""
    ak: bytes
    """The attestation key's name (TPM 2.0 Library, Part 1, 16)."""
    ak_sha256: bytes
    """SHA-256 of that: 32 bytes, whatever its hash is."""

    @classmethod
    def of(cls, ek: Public, ak: Public) -> "Names":
        """Return the names of these keys."""
        name = ak.name
        return cls(ek_sha256(ek), ek_key_sha256(ek).hex(), name, sha256(name).digest())


def ek_sha256(ek: Public) -> bytes:
    """Return the 32 bytes by which an endorsement key is enrolled, bound and banned: over its TPMT_PUBLIC."""
    return sha256(ek.raw).digest()


def ek_key_sha256(ek: Public) -> bytes:
    """Return the 32 bytes that name the endorsement key itself, over its SubjectPublicKeyInfo.

    A machine that tells other attributes of its key has another `ek_sha256`, and still activates credentials;
    by this it stays the one chip that it is.
    """
    return sha256(ek.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
