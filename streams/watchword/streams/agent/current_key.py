"""The key and the certificate with which a node speaks for itself now."""

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from watchword.handlers.crypto.renewals import PrivateKey
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.identity import Identity


def current_key(identity: Identity) -> tuple[PrivateKey, x509.Certificate]:
    """Return the current key and certificate; raises `StateUnusable`."""
    try:
        key = load_pem_private_key(identity.key.read_bytes(), password=None)
        leaf = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    except (OSError, ValueError, TypeError):
        message = f"{identity.folder}: key and certificate cannot be read"
        raise StateUnusable(message) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        message = f"{identity.folder}: the key is of a kind that this agent does not make"
        raise StateUnusable(message)
    return key, leaf
