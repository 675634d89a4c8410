"""The path from Azure's signer to a root of ours, of any length within the bound (RFC 5280, 6.1).

Issuers come from the folder first and from the CMS second; nothing is fetched, whatever the
certificates say of where their issuers are (authorityInfoAccess). The path is found by names, issuer by
issuer, and then verified as one line by `cryptography`'s path builder.
"""

from collections.abc import Sequence
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

from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_DEPTH = 6
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 4096
RSA_EXPONENT = 65537

_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def load(data: bytes) -> x509.Certificate:
    """Return a certificate (DER) whose key is neither weak nor costly; raises `Unproven` with `chain`."""
    try:
        certificate = x509.load_der_x509_certificate(data)
        if not _acceptable(certificate):
            raise Unproven("chain")
    except _UNREADABLE:
        raise Unproven("chain") from None
    return certificate


def _acceptable(certificate: x509.Certificate) -> bool:
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in _CURVES
    return (
        isinstance(key, rsa.RSAPublicKey)
        and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS
        and key.public_numbers().e == RSA_EXPONENT
    )


def verify_chain(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    at: datetime,
) -> x509.Certificate:
    """Return the root that the leaf chains to at this time.

    Raises:
        Unproven: `chain`.
    """
    try:
        path = _line(leaf, issuers, roots)
        verifier = (
            PolicyBuilder()
            .store(Store(list(roots)))
            .time(at)
            .max_chain_depth(len(path))
            .extension_policies(ca_policy=_CA, ee_policy=_LEAF)
            .build_client_verifier()
        )
        return verifier.verify(leaf, path).chain[-1]
    except (VerificationError, *_UNREADABLE):
        raise Unproven("chain") from None


def _line(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
) -> list[x509.Certificate]:
    """Return the issuers that lead by name and signature from the leaf to a root, the leaf's issuer first.

    Cross-signed issuers share a name and key, so that the first that fits is as good as another.
    """
    trusted = {root.subject for root in roots}
    path: list[x509.Certificate] = []
    at = leaf
    while at.issuer not in trusted:
        if len(path) == MAX_DEPTH:
            raise Unproven("chain")
        at = _issuer_of(at, issuers, path)
        path.append(at)
    return path


def _issuer_of(
    at: x509.Certificate, issuers: Sequence[x509.Certificate], path: Sequence[x509.Certificate]
) -> x509.Certificate:
    for issuer in issuers:
        if issuer.subject == at.issuer and issuer not in path:
            return issuer
    raise Unproven("chain")


def _may_sign(policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    del policy, certificate
    if usage is not None and not usage.digital_signature:
        message = "the key may not sign"
        raise ValueError(message)


def _is_no_ca(
    policy: Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints | None
) -> None:
    del policy, certificate
    if constraints is not None and constraints.ca:
        message = "a CA is no metadata service"
        raise ValueError(message)


def _is_ca(
    policy: Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    del policy, certificate
    if not constraints.ca:
        message = "no CA"
        raise ValueError(message)


def _may_certify(
    policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None
) -> None:
    del policy, certificate
    if usage is not None and not usage.key_cert_sign:
        message = "the key may not certify"
        raise ValueError(message)


# Azure's signers are certificates for TLS servers; of that only what concerns a signature is asked.
_LEAF = (
    ExtensionPolicy.permit_all()
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_no_ca)
)
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
)
