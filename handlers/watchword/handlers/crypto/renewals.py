"""What a node shows to renew its certificate: the certificate's name, its key, and a signature of that key.

`sealed` holds, length-prefixed: the form `renew/1`, the SHA-256 of the current certificate's
TBSCertificate (32 bytes), the SubjectPublicKeyInfo of its key (DER), and a signature over
`signed_text`. The text names the new CSR and the request, so that a signature is good for one request.
"""

from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA384

from watchword.handlers.crypto.keypolicy import PublicKey
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape

LABEL = b"watchword renew v1"
FORM = b"renew/1"

_DIGEST_BYTES = 32
_MAX_SPKI_BYTES = 1200
_MAX_SIGNATURE_BYTES = 1024
_P256_BITS = 256

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class Signing(Protocol):
    """Whoever holds the key of the current certificate."""

    def sign(self, text: bytes) -> bytes:
        """Return ECDSA with the curve's hash, RSASSA-PSS with SHA-256, or Ed25519."""
        ...


@dataclass(frozen=True, slots=True)
class RenewalEvidence:
    """What is sealed in a request of kind `renew`."""

    tbs_sha256: bytes
    """SHA-256 of the current certificate's TBSCertificate: what names a certificate."""
    spki_der: bytes
    """The key that the certificate is for; its SHA-256 has to be the one that the store has."""
    signature: bytes

    def encode(self) -> bytes:
        """Return the payload."""
        return length_prefixed(FORM, self.tbs_sha256, self.spki_der, self.signature)

    @classmethod
    def decode(cls, payload: bytes) -> "RenewalEvidence":
        """Return what a payload shows; raises `SchemaError` for another form or a part out of bounds."""
        form, tbs_sha256, spki_der, signature = read_length_prefixed(payload, 4)
        if form != FORM:
            message = "another form"
            raise WrongShape(message)
        check_shown(tbs_sha256, spki_der, signature)
        return cls(tbs_sha256, spki_der, signature)


def check_shown(tbs_sha256: bytes, spki_der: bytes, signature: bytes) -> None:
    """Raise `WrongShape` if what names a certificate, and proves its key, is out of bounds."""
    if (
        len(tbs_sha256) != _DIGEST_BYTES
        or not 0 < len(spki_der) <= _MAX_SPKI_BYTES
        or not 0 < len(signature) <= _MAX_SIGNATURE_BYTES
    ):
        message = "a part is out of bounds"
        raise WrongShape(message)


def signed_text(tbs_sha256: bytes, csr_sha256: bytes, request_id: str) -> bytes:
    """Return what the current certificate's key signs; the label keeps its other signatures from counting."""
    return LABEL + length_prefixed(tbs_sha256, csr_sha256, request_id.encode())


def sign(key: PrivateKey, text: bytes) -> bytes:
    """Return the signature of a node's key."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(text)
    return key.sign(text, ec.ECDSA(_digest(key.curve)))


def holds(key: PublicKey, signature: bytes, text: bytes) -> bool:
    """Tell whether the signature is this key's: ECDSA with the curve's hash, RSASSA-PSS with SHA-256, or Ed25519."""
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, text, ec.ECDSA(_digest(key.curve)))
        elif isinstance(key, rsa.RSAPublicKey):
            pss = padding.PSS(padding.MGF1(SHA256()), SHA256().digest_size)
            key.verify(signature, text, pss, SHA256())
        else:
            key.verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _digest(curve: ec.EllipticCurve) -> SHA256 | SHA384:
    return SHA256() if curve.key_size <= _P256_BITS else SHA384()
