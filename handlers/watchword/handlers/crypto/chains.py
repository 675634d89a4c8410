"""One line of certificates, verified by `cryptography`'s path builder (RFC 5280, 6.1) with policies of ours.

The line is found before, by names: what is verified is never a graph that somebody else has drawn. The
policies ask for what proving possession needs, and not for a TLS client. What the path builder does
not take, we do not take: an Ed25519 CA is refused (its rules are the web PKI's), and an unknown
critical extension always is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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

from watchword.handlers.errors import InvalidInput, SignatureBroken

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

UNREADABLE_FILE: tuple[type[Exception], ...] = (OSError, *UNREADABLE)
"""The same, where it comes from a file."""

_MIN_RSA_BITS = 2048
_RSA_EXPONENT = 65537
_CURVES = ("secp256r1", "secp384r1", "secp521r1")


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Which keys of certificates are neither weak nor costly, besides P-256, P-384 and P-521."""

    max_rsa_bits: int
    takes_ed25519: bool = False


def acceptable_key(certificate: x509.Certificate, bounds: KeyBounds) -> CertificateKey | None:
    """Return the certificate's key if it is within the bounds; raises one of `UNREADABLE`."""
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key if key.curve.name in _CURVES else None
    if isinstance(key, Ed25519PublicKey):
        return key if bounds.takes_ed25519 else None
    if (
        isinstance(key, rsa.RSAPublicKey)
        and _MIN_RSA_BITS <= key.key_size <= bounds.max_rsa_bits
        and key.public_numbers().e == _RSA_EXPONENT
    ):
        return key
    return None


def verify_line(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: tuple[x509.Certificate, ...],
    at: datetime,
    *,
    must_state_usage: bool,
) -> x509.Certificate:
    """Return the root that the leaf chains to over all of `issuers`, the leaf's issuer first, at this time.

    The leaf is no CA and its keyUsage has digitalSignature; with `must_state_usage` it has to have one.

    Raises:
        SignatureBroken: there is no such path. The cause has names of extensions, for debuggers only.
    """
    try:
        verifier = line_verifier(roots, at, len(issuers), must_state_usage=must_state_usage)
        return verifier.verify(leaf, list(issuers)).chain[-1]
    except VerificationError as error:
        message = "no path to a trusted CA"
        raise SignatureBroken(message) from error
    except UNREADABLE as error:
        raise SignatureBroken(type(error).__name__) from None


def line_verifier(
    roots: tuple[x509.Certificate, ...], at: datetime, depth: int, *, must_state_usage: bool
) -> ClientVerifier:
    """Return what verifies lines of at most `depth` issuers between leaf and root."""
    return (
        PolicyBuilder()
        .store(_store(roots))
        .time(at)
        .max_chain_depth(depth)
        .extension_policies(
            ca_policy=_CA, ee_policy=_STATED_LEAF if must_state_usage else _ANY_LEAF
        )
        .build_client_verifier()
    )


@lru_cache(maxsize=64)
def _store(roots: tuple[x509.Certificate, ...]) -> Store:
    return Store(list(roots))


def _may_sign(policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    del policy, certificate
    if usage is not None and not usage.digital_signature:
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
        message = "a CA, where a machine's or a service's certificate should be"
        raise ValueError(message)


_ANY_LEAF = (
    ExtensionPolicy.permit_all()
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_no_ca)
)
_STATED_LEAF = (
    ExtensionPolicy.permit_all()
    .require_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_no_ca)
)
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
)
