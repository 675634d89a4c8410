"""What a node shows to renew its certificate: the certificate's name, its key, and a signature of that key.

`sealed` holds, length-prefixed: the form `renew/1`, the SHA-256 of the current certificate's
TBSCertificate (32 bytes), the SubjectPublicKeyInfo of its key (DER), and a signature over
`signed_text`. The text names the new CSR and the request, so that a signature is good for one request.

In the form `renew/2` a fifth part follows: the proof that the certificate's key statement holds for the
new key. What it consists of is the affair of the attestor that made the statement.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA384

from watchword.handlers.crypto.keypolicy import PublicKey
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape

LABEL = b"watchword renew v1"
FORM = b"renew/1"
PROVED_FORM = b"renew/2"

_DIGEST_BYTES = 32
_MAX_SPKI_BYTES = 1200
_MAX_SIGNATURE_BYTES = 1024
_MAX_PROOF_BYTES = 16 * 1024
_P256_BITS = 256

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@runtime_checkable
class ProvesKeys(Protocol):
    """An attestor whose key statements can be proved again, for a new key."""

    def proves_key(self, statement: str, proof: bytes, text: bytes, key: PublicKey) -> bool:
        """Tell whether the proof shows that the statement holds for this key too.

        `text` is what the renewal is signed over (`signed_text`): a proof that is not for it is yesterday's.
        Total: whatever a machine sends is answered, and raises nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class RenewalEvidence:
    """What is sealed in a request of kind `renew`."""

    tbs_sha256: bytes
    """SHA-256 of the current certificate's TBSCertificate: what names a certificate."""
    spki_der: bytes
    """The key that the certificate is for; its SHA-256 has to be the one that the store has."""
    signature: bytes
    proof: bytes | None = None
    """That the key statement holds for the new key."""

    def encode(self) -> bytes:
        """Return the payload."""
        parts = (self.tbs_sha256, self.spki_der, self.signature)
        if self.proof is None:
            return length_prefixed(FORM, *parts)
        return length_prefixed(PROVED_FORM, *parts, self.proof)

    @classmethod
    def decode(cls, payload: bytes) -> "RenewalEvidence":
        """Return what a payload shows; raises `SchemaError` for another form or a part out of bounds."""
        is_proved = payload[4 : 4 + len(PROVED_FORM)] == PROVED_FORM
        parts = read_length_prefixed(payload, 5 if is_proved else 4)
        form, tbs_sha256, spki_der, signature = parts[:4]
        proof = parts[4] if is_proved else None
        if form not in (FORM, PROVED_FORM) or not (
            proof is None or 0 < len(proof) <= _MAX_PROOF_BYTES
        ):
            message = "another form"
            raise WrongShape(message)
        check_shown(tbs_sha256, spki_der, signature)
        return cls(tbs_sha256, spki_der, signature, proof)


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
