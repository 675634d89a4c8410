"""The CRL that peers' certificates are checked with: fetched, checked, and kept for local services."""

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from watchword.streams.agent.errors import TransportRefused, TransportUnavailable
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import Trust

_log = structlog.get_logger(__name__)


async def refresh_crl(trust: Trust, keystore: Keystore, transport: Transport) -> bool:
    """Store the published CRL if it is signed by an authority of the trust bundle and not older.

    Return whether a newer one was stored. Nothing published, and nobody there, is no error.

    Raises:
        StateUnusable: the disk.
    """
    try:
        offered = await transport.crl()
    except (TransportUnavailable, TransportRefused) as error:
        _log.info("CRL could not be fetched", error=str(error))
        return False
    if offered is None:
        return False
    found = _load(offered)
    if found is None or not any(_signed(found, authority) for authority in trust.authorities):
        _log.warning("CRL is not acceptable")
        return False
    stored = keystore.read("crl.der")
    before = None if stored is None else _load(stored)
    if before is not None and found.last_update_utc <= before.last_update_utc:
        return False
    keystore.write("crl.der", found.public_bytes(Encoding.DER))
    return True


def _load(der: bytes) -> x509.CertificateRevocationList | None:
    try:
        return x509.load_der_x509_crl(der)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _signed(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    if crl.issuer != authority.subject or not isinstance(
        key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
    ):
        return False
    try:
        return crl.is_signature_valid(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
