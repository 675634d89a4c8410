"""The path from Azure's signer to a root of ours, of any length within the bound (RFC 5280, 6.1).

Issuers come from the folder first and from the CMS second; nothing is fetched, whatever the
certificates say of where their issuers are (authorityInfoAccess). The path is found by names, issuer by
issuer, and then verified as one line by `cryptography`'s path builder.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

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
MAX_LINES = 4
"""How many ways of cross-signed issuers are verified."""
MAX_STEPS = 64
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
        # RFC 5280, 4.1.2.2; `cryptography` warns of others and will not load them one day.
        if certificate.serial_number <= 0 or not _acceptable(certificate):
            raise Unproven("chain")
        # Parsed when first asked for: what cannot be parsed is found here and not on the way.
        _ = certificate.subject, certificate.issuer, certificate.extensions
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
) -> list[x509.Certificate]:
    """Return the path from the leaf to a root at this time, both included.

    Raises:
        Unproven: `chain`.
    """
    for path in islice(_lines(leaf, issuers, roots), MAX_LINES):
        try:
            verifier = (
                PolicyBuilder()
                .store(Store(list(roots)))
                .time(at)
                .max_chain_depth(len(path))
                .extension_policies(ca_policy=_CA, ee_policy=_LEAF)
                .build_client_verifier()
            )
            return verifier.verify(leaf, path).chain
        except (VerificationError, *_UNREADABLE):
            continue
    raise Unproven("chain")


def _lines(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
) -> Iterator[list[x509.Certificate]]:
    """Give the issuers that lead by their names from the leaf to a root, the leaf's issuer first.

    There is more than one such line where issuers are cross-signed. Names can lead round in circles:
    a certificate is in a line once, and all the looking together ends after `MAX_STEPS`.
    """
    trusted = {root.subject for root in roots}
    waiting: list[list[x509.Certificate]] = [[]]
    for _ in range(MAX_STEPS):
        if not waiting:
            return
        path = waiting.pop()
        at = path[-1] if path else leaf
        if at.issuer in trusted:
            yield path
        if len(path) < MAX_DEPTH:
            # The last comes first from the stack: the folder's issuers before a stranger's.
            waiting += [
                [*path, issuer]
                for issuer in reversed(issuers)
                if issuer.subject == at.issuer and issuer not in path
            ]


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
