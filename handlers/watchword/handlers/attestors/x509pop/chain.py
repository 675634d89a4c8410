"""The path from a machine's certificate to an operator's CA (RFC 5280, 6.1), with our own policies.

`cryptography`'s path builder does it, with three things of ours: costs are bounded before OpenSSL sees
a key; names must lead from issuer to issuer before a signature is looked at, so that what is verified
is one line and no graph; and the extension policies ask for what proving possession needs and not for
a TLS client. What the path builder does not take, we do not take: an Ed25519 CA is refused (its rules
are the web PKI's), and an unknown critical extension always is.
"""

import warnings
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.verification import (
    ClientVerifier,
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from watchword.handlers.crypto import der
from watchword.handlers.errors import InvalidInput, SignatureBroken

MAX_RSA_BITS = 8192
MIN_RSA_BITS = 2048
RSA_EXPONENT = 65537
_VERSION = 0xA0
_MAX_SPKI_BYTES = 1200
"""An RSA-8192 SubjectPublicKeyInfo has 1,062 bytes; whatever is longer is not parsed as a key."""

CertificateKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | Ed25519PublicKey

UNREADABLE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    IndexError,
    UnsupportedAlgorithm,
    InvalidInput,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What reading a hostile certificate raises: `cryptography` parses most of it only when asked for it."""


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
        key = certificate.public_key()
    except UNREADABLE as error:
        raise Unacceptable(type(error).__name__) from None
    if isinstance(key, Ed25519PublicKey):
        return key  # our own nodes have such keys; no operator's CA leads to one
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in (
        "secp256r1",
        "secp384r1",
        "secp521r1",
    ):
        return key
    if (
        isinstance(key, rsa.RSAPublicKey)
        and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS
        and key.public_numbers().e == RSA_EXPONENT
    ):
        return key
    message = "the key is of a kind or size that is not accepted"
    raise Unacceptable(message)


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
        _verifier(authorities, at, len(path)).verify(leaf, path)
    except VerificationError as error:
        # Its text names extensions and fields of the certificate: for nobody's eyes but a debugger's.
        message = "no path to a trusted CA"
        raise SignatureBroken(message) from error
    except UNREADABLE as error:
        raise SignatureBroken(type(error).__name__) from None


def _verifier(
    authorities: tuple[x509.Certificate, ...], at: datetime, depth: int
) -> ClientVerifier:
    return (
        PolicyBuilder()
        .store(_store(authorities))
        .time(at)
        .max_chain_depth(depth)
        .extension_policies(ca_policy=_CA, ee_policy=_LEAF)
        .build_client_verifier()
    )


@lru_cache(maxsize=64)
def _store(authorities: tuple[x509.Certificate, ...]) -> Store:
    return Store(list(authorities))


def _may_sign(policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage) -> None:
    del policy, certificate
    if not usage.digital_signature:
        message = "the key may not sign"
        raise ValueError(message)


def _may_certify(
    policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None
) -> None:
    del policy, certificate
    if usage is not None and not usage.key_cert_sign:
        message = "the key may not certify"
        raise ValueError(message)


def _is_ca(
    policy: Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    del policy, certificate
    if not constraints.ca:
        message = "no CA"
        raise ValueError(message)


def _is_no_ca(
    policy: Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints | None
) -> None:
    del policy, certificate
    if constraints is not None and constraints.ca:
        message = "a CA is no machine"
        raise ValueError(message)


_LEAF = (
    ExtensionPolicy.permit_all()
    .require_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_no_ca)
)
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
)


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
    """Find the SubjectPublicKeyInfo without parsing it as a key (RFC 5280, 4.1), and bound its size."""
    start, end = der.read(data, 0, der.SEQUENCE)
    if end != len(data):
        message = "bytes are left over"
        raise Unacceptable(message)
    at, signed_end = der.read(data, start, der.SEQUENCE)
    # Behind what is signed, nobody vouches for a byte: the signature has to be whole ones.
    _, algorithm_end = der.read(data, signed_end, der.SEQUENCE)
    value, _ = der.read(data, algorithm_end, der.BIT_STRING)
    if data[value] != 0:
        message = "a signature of no whole bytes"
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
