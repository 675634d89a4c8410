"""The path from a machine's certificate to an operator's CA (RFC 5280, 6.1), with our own policies.

`cryptography`'s path builder does it, with two things of ours: costs are bounded before OpenSSL sees a
key, and the extension policies ask for what proves possession needs and not for a TLS client. What
the path builder does not take, we do not take: an Ed25519 CA is refused (its rules are the web
PKI's), and an unknown critical extension always is.
"""

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import (
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

CertificateKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Unacceptable(SignatureBroken):
    """The certificate is not one to work with: unparseable, or its key too costly or too weak."""


def load(data: bytes) -> x509.Certificate:
    """Return a certificate whose key is cheap enough to verify with.

    Raises:
        Unacceptable: not a certificate, bytes left over, or a key beyond the bounds.
    """
    try:
        _bound_the_key(data)
        certificate = x509.load_der_x509_certificate(data)
        key_of(certificate)
    except Unacceptable:
        raise
    except (ValueError, TypeError, IndexError, InvalidInput) as error:
        raise Unacceptable(type(error).__name__) from None
    return certificate


def key_of(certificate: x509.Certificate) -> CertificateKey:
    """Return the certificate's key if it is of an accepted kind and size; raises `Unacceptable`."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Unacceptable(type(error).__name__) from None
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


def verify_path(
    leaf: x509.Certificate,
    intermediates: list[x509.Certificate],
    authorities: tuple[x509.Certificate, ...],
    at: datetime,
    *,
    max_intermediates: int,
) -> None:
    """Return only if the leaf chains to one of the authorities and may sign, at this time.

    Raises:
        SignatureBroken: there is no such path.
    """
    builder = (
        PolicyBuilder()
        .store(Store(list(authorities)))
        .time(at)
        .max_chain_depth(max_intermediates)
        .extension_policies(ca_policy=_CA, ee_policy=_LEAF)
    )
    try:
        builder.build_client_verifier().verify(leaf, intermediates)
    except VerificationError as error:
        # Its text names extensions and fields of the certificate: for nobody's eyes but a debugger's.
        message = "no path to a trusted CA"
        raise SignatureBroken(message) from error
    except ValueError as error:
        raise SignatureBroken(type(error).__name__) from None


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


_LEAF = ExtensionPolicy.permit_all().require_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
)


def _bound_the_key(data: bytes) -> None:
    """Find the SubjectPublicKeyInfo without parsing it as a key (RFC 5280, 4.1), and bound its size."""
    start, end = der.read(data, 0, der.SEQUENCE)
    if end != len(data):
        message = "bytes are left over"
        raise Unacceptable(message)
    at, _ = der.read(data, start, der.SEQUENCE)
    if data[at] == _VERSION:
        _, at = der.read(data, at, _VERSION)
    # Serial number, signature algorithm, issuer, validity, subject.
    for tag in (der.INTEGER, der.SEQUENCE, der.SEQUENCE, der.SEQUENCE, der.SEQUENCE):
        _, at = der.read(data, at, tag)
    _, end = der.read(data, at, der.SEQUENCE)
    if end - at > _MAX_SPKI_BYTES:
        message = "the key is too large"
        raise Unacceptable(message)
