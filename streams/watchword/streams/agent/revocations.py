"""The CRL that peers' certificates are checked with: fetched, checked, and kept for local services."""

from collections.abc import Sequence
from contextlib import suppress

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from watchword.handlers.crypto.camanifest import ca_kid
from watchword.handlers.crypto.chains import UNREADABLE, UNREADABLE_FILE
from watchword.handlers.errors import ConfigRefused
from watchword.streams.agent.errors import TransportRefused, TransportUnavailable
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import Trust

_log = structlog.get_logger(__name__)


async def refresh_crl(trust: Trust, keystore: Keystore, transport: Transport) -> bool:
    """Store the published CRL if it is not older, and signed by an authority of the trust bundle or a CA below one.

    A CA below an authority is known once the machine has a certificate of it: the chain was checked then.

    Return whether a newer one was stored. Nothing published, and nobody there, is no error.

    Raises:
        StateUnusable: the disk.
    """
    try:
        offered = await transport.crl()
    except (TransportUnavailable, TransportRefused) as error:
        _log.info("CRL could not be fetched", error=str(error))
        return False
    issuers = [*trust.authorities, *_below(keystore)]
    found = _acceptable(offered, issuers, keystore.read("crl.der"))
    if found is None:
        return False
    keystore.write("crl.der", found)
    return True


async def refresh_crls(trust: Trust, keystore: Keystore, transport: Transport) -> None:
    """Do the same for each CA by itself, while there is more than one: each signs a CRL of its own.

    Raises:
        StateUnusable: the disk.
    """
    cas = _by_name(trust.authorities) if len(trust.authorities) > 1 else {}
    keystore.keep_crls_of(cas.keys())
    for name, authority in cas.items():
        try:
            offered = await transport.crl(name)
        except (TransportUnavailable, TransportRefused) as error:
            _log.info("CRL could not be fetched", ca=name, error=str(error))
            return
        found = _acceptable(offered, [authority], keystore.crl_of(name))
        if found is not None:
            keystore.write_crl_of(name, found)


def _below(keystore: Keystore) -> list[x509.Certificate]:
    """Return the CAs between the machine's certificate and its authority."""
    identity = keystore.identity()
    if identity is None:
        return []
    try:
        return x509.load_pem_x509_certificates((identity.folder / "chain.pem").read_bytes())[1:]
    except UNREADABLE_FILE:
        return []


def _by_name(authorities: Sequence[x509.Certificate]) -> dict[str, x509.Certificate]:
    found: dict[str, x509.Certificate] = {}
    for authority in authorities:
        with suppress(
            ConfigRefused
        ):  # an anchor without a key identifier has issued nothing of ours
            found[ca_kid(authority)] = authority
    return found


def _acceptable(
    offered: bytes | None, authorities: Sequence[x509.Certificate], stored: bytes | None
) -> bytes | None:
    """Return the DER of what is offered, if one of these has signed it and it is newer than what is stored."""
    if offered is None:
        return None
    found = _load(offered)
    if found is None or not any(_signed(found, authority) for authority in authorities):
        _log.warning("CRL is not acceptable")
        return None
    before = None if stored is None else _load(stored)
    if before is not None and found.last_update_utc <= before.last_update_utc:
        return None
    return found.public_bytes(Encoding.DER)


def _load(der: bytes) -> x509.CertificateRevocationList | None:
    try:
        return x509.load_der_x509_crl(der)
    except UNREADABLE:
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
