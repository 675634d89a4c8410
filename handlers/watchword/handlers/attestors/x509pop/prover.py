"""Shows a certificate and signs a challenge with its key: the machine's half of `x509pop`."""

from collections.abc import Callable
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from watchword.handlers.attestors.x509pop.evidence import (
    MAX_INTERMEDIATES,
    NONCE_BYTES,
    PossessionEvidence,
    signed_text,
)
from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence
from watchword.schemas.ids import Role


class Signing(Protocol):
    """Whoever holds the certificate's key: a file, a TPM, an agent's own identity."""

    def sign(self, text: bytes) -> bytes:
        """Return ECDSA with SHA-256 on P-256 and SHA-384 on larger curves, RSASSA-PSS with SHA-256, or Ed25519; raises `NoEvidence`."""
        ...


class FileKey:
    """The key in a PEM file, read at each signature and kept nowhere."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        """Take what returns the PEM, or raises `NoEvidence`."""
        self._read = read

    def sign(self, text: bytes) -> bytes:
        """See `Signing`.

        Raises:
            BadArgument: the file holds no key that can be used.
        """
        try:
            key = load_pem_private_key(self._read(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            message = "the key file holds no private key that can be read without a password"
            raise BadArgument(message) from None
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.sign(text, ec.ECDSA(SHA256() if key.curve.key_size <= 256 else SHA384()))  # noqa: PLR2004 - bits
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(
                text, padding.PSS(padding.MGF1(SHA256()), SHA256().digest_size), SHA256()
            )
        if isinstance(key, Ed25519PrivateKey):
            return key.sign(text)
        message = "the key is neither ECDSA, RSA nor Ed25519"
        raise BadArgument(message)


class X509PopProver:
    """Proves possession of a certified key."""

    id = "x509pop"

    def __init__(self, chain: Callable[[], bytes], key: Signing, trust_domain: str) -> None:
        """Take what returns the chain as PEM (leaf first) or raises `NoEvidence`, and the key's holder."""
        self._chain = chain
        self._key = key
        self._trust_domain = trust_domain

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the certificates; the signature waits for a challenge."""
        del csr_sha256, role
        return self._shown(b"")

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return the certificates with a signature over the challenge and the CSR."""
        if len(challenge) != NONCE_BYTES:
            message = "this is no challenge of x509pop"
            raise NoEvidence(message)
        return self._shown(
            self._key.sign(signed_text(self._trust_domain, role, challenge, csr_sha256))
        )

    def _shown(self, signature: bytes) -> bytes:
        try:
            certificates = x509.load_pem_x509_certificates(self._chain())
        except UNREADABLE:
            message = "the certificate file holds no certificates"
            raise BadArgument(message) from None
        leaf, *rest = (c.public_bytes(Encoding.DER) for c in certificates)
        if len(rest) > MAX_INTERMEDIATES:
            message = f"at most {MAX_INTERMEDIATES} intermediates are taken"
            raise BadArgument(message)
        return PossessionEvidence(leaf, tuple(rest), signature).encode()
