"""The path from a machine's certificate to an operator's CA: what is looked at before `crypto.chains` verifies it.

Costs are bounded before OpenSSL sees a key, and names must lead from issuer to issuer before a signature
is looked at, so that what is verified is one line and no graph.
"""

import warnings
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509

from watchword.handlers.crypto import der
from watchword.handlers.crypto.chains import (
    UNREADABLE,
    CertificateKey,
    KeyBounds,
    acceptable_key,
    verify_line,
)
from watchword.handlers.errors import SignatureBroken

_BOUNDS = KeyBounds(max_rsa_bits=8192, takes_ed25519=True)
"""Our own nodes have Ed25519 keys; no operator's CA leads to one."""

_VERSION = 0xA0
_MAX_SPKI_BYTES = 1200
"""An RSA-8192 SubjectPublicKeyInfo has 1,062 bytes; whatever is longer is not parsed as a key."""


class Unacceptable(SignatureBroken):
    """The certificate is not one to work with: unparseable, or its key too costly or too weak."""


def load(data: bytes) -> x509.Certificate:
    """Return a certificate whose key is cheap enough to verify with.

    Raises:
        Unacceptable: not a certificate, bytes left over, or a key beyond the bounds.
    """
    try:
        _bound_the_key(data)
        with warnings.catch_warnings():
            # On names that are longer than they should be: a sender must not write into our log.
            warnings.simplefilter("ignore")
            certificate = x509.load_der_x509_certificate(data)
            # Parsed when first looked at, and kept: what cannot be read is found here.
            _ = certificate.subject, certificate.issuer
            _check_names(certificate)
        key_of(certificate)
    except Unacceptable:
        raise
    except UNREADABLE as error:
        raise Unacceptable(type(error).__name__) from None
    return certificate


def key_of(certificate: x509.Certificate) -> CertificateKey:
    """Return the certificate's key if it is of an accepted kind and size; raises `Unacceptable`."""
    try:
        key = acceptable_key(certificate, _BOUNDS)
    except UNREADABLE as error:
        raise Unacceptable(type(error).__name__) from None
    if key is None:
        message = "the key is of a kind or size that is not accepted"
        raise Unacceptable(message)
    return key


def named_path(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    authorities: Sequence[x509.Certificate],
) -> list[x509.Certificate]:
    """Return the intermediates that lead by their names from the leaf to an authority; nothing is verified.

    They come in order, the leaf's issuer first; those beyond the first that an authority has issued are
    left out.

    Raises:
        SignatureBroken: the names do not lead there, or lead round in a circle.
    """
    trusted = {authority.subject for authority in authorities}
    seen = {leaf.subject}
    path: list[x509.Certificate] = []
    at = leaf
    for certificate in intermediates:
        if at.issuer in trusted:
            break
        if certificate.subject != at.issuer or certificate.subject in seen:
            message = "the names lead to no trusted CA"
            raise SignatureBroken(message)
        seen.add(certificate.subject)
        path.append(certificate)
        at = certificate
    if at.issuer not in trusted:
        message = "the names lead to no trusted CA"
        raise SignatureBroken(message)
    return path


def verify_path(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    authorities: tuple[x509.Certificate, ...],
    at: datetime,
) -> None:
    """Return only if the leaf chains to one of the authorities and may sign, at this time.

    Raises:
        SignatureBroken: there is no such path.
    """
    try:
        path = named_path(leaf, intermediates, authorities)
    except UNREADABLE as error:
        raise SignatureBroken(type(error).__name__) from None
    verify_line(leaf, path, authorities, at, must_state_usage=True)


def _check_names(certificate: x509.Certificate) -> None:
    """Return only if no dNSName is empty (RFC 5280, 4.2.1.6), which a pattern might take for a name."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return
    if "" in names.value.get_values_for_type(x509.DNSName):
        message = "an empty name"
        raise Unacceptable(message)


def _bound_the_key(data: bytes) -> None:
    """Find the SubjectPublicKeyInfo without parsing it as a key (RFC 5280, 4.1), and bound its size.

    What is around it is looked at too where a parser below is lax: bytes that are left over, and bits of
    the signature that nothing says anything about.
    """
    start, end = der.read(data, 0, der.SEQUENCE)
    if end != len(data):
        message = "bytes are left over"
        raise Unacceptable(message)
    at, behind = der.read(data, start, der.SEQUENCE)
    _, behind = der.read(data, behind, der.SEQUENCE)
    bits, behind = der.read(data, behind, der.BIT_STRING)
    if behind != end or data[bits] != 0:
        message = "the signature is not of whole bytes, or not the end"
        raise Unacceptable(message)
    if data[at] == _VERSION:
        _, at = der.read(data, at, _VERSION)
    start, at = der.read(data, at, der.INTEGER)
    if not int.from_bytes(data[start:at], "big", signed=True) > 0:
        message = "the serial number is not positive"
        raise Unacceptable(message)
    # Signature algorithm, issuer, validity, subject.
    for _ in range(4):
        _, at = der.read(data, at, der.SEQUENCE)
    _, end = der.read(data, at, der.SEQUENCE)
    if end - at > _MAX_SPKI_BYTES:
        message = "the key is too large"
        raise Unacceptable(message)
