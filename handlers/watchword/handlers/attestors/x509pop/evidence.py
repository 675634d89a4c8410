"""What `x509pop` shows: certificates, and in the second round a signature.

Four length-prefixed parts: the form `x509pop/1`, the leaf (DER), the intermediates (length-prefixed among
themselves, leaf's issuer first, at most four), and the signature, which is empty in the first round.
"""

from dataclasses import dataclass

from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape
from watchword.schemas.ids import Role

FORM = b"x509pop/1"
LABEL = b"watchword x509pop v1"
MAX_CERTIFICATE_BYTES = 8 * 1024
MAX_INTERMEDIATES = 4
MAX_SIGNATURE_BYTES = 1024
NONCE_BYTES = 32


@dataclass(frozen=True, slots=True)
class PossessionEvidence:
    """DER certificates, and the signature of the second round."""

    leaf: bytes
    intermediates: tuple[bytes, ...]
    signature: bytes

    def encode(self) -> bytes:
        """Return the payload."""
        chain = length_prefixed(*self.intermediates)
        return length_prefixed(FORM, self.leaf, chain, self.signature)

    @classmethod
    def decode(cls, payload: bytes) -> "PossessionEvidence":
        """Return what a payload shows; every bound is checked before anything is parsed.

        Raises:
            SchemaError: it has another form, too many certificates, or one that is too large.
        """
        if len(payload) > (MAX_INTERMEDIATES + 2) * (MAX_CERTIFICATE_BYTES + 16):
            message = "too large"
            raise WrongShape(message)
        form, leaf, chain, signature = read_length_prefixed(payload, 4)
        if form != FORM or len(signature) > MAX_SIGNATURE_BYTES:
            message = "another form"
            raise WrongShape(message)
        intermediates = _each(chain)
        if any(not 0 < len(der) <= MAX_CERTIFICATE_BYTES for der in (leaf, *intermediates)):
            message = "a certificate is too large"
            raise WrongShape(message)
        return cls(leaf, intermediates, signature)


def signed_text(trust_domain: str, role: Role, nonce: bytes, csr_sha256: bytes) -> bytes:
    """Return the bytes that the certificate's key signs; the label keeps other signatures from counting."""
    return LABEL + length_prefixed(trust_domain.encode(), role.encode(), nonce, csr_sha256)


def _each(chain: bytes) -> tuple[bytes, ...]:
    """Return the intermediates, at most four; read by hand because their number is not known."""
    found: list[bytes] = []
    at = 0
    while at < len(chain):
        if len(found) == MAX_INTERMEDIATES:
            message = "too many intermediates"
            raise WrongShape(message)
        end = at + 4 + int.from_bytes(chain[at : at + 4], "big")
        if end > len(chain):
            message = "a length goes beyond the data"
            raise WrongShape(message)
        found.append(chain[at + 4 : end])
        at = end
    return tuple(found)
