"""Whether an endorsement key is a genuine TPM's, by its certificate and an operator's anchors.

It proves *a* genuine TPM and nothing about whose. The profile is the TCG's "EK Credential Profile for TPM
Family 2.0" (3.2), with one thing left out that real certificates leave out: without an extended key
usage (Google's newer ones) the key usage alone says that this is a key to encrypt to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding

from watchword.handlers.attestors.tpm.certificates import (
    Certificate,
    in_file,
    read_certificate,
    unwrap,
)
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Public

EK_CERTIFICATE = "2.23.133.8.1"
"""tcg-kp-EKCertificate."""
MAX_INTERMEDIATES = 4
_MAX_SIGNATURES = 8
"""How many signatures one chain may cost: several anchors may have one name."""
_HASHES = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}
_LEAF_CRITICAL = frozenset(
    ("basic_constraints", "key_usage", "extended_key_usage", "subject_alt_name")
)
_CA_CRITICAL = _LEAF_CRITICAL | {"certificate_policies"}

_log = structlog.get_logger(__name__)


class NoChain(Malformed):
    """The certificate is no endorsement certificate, or leads to no anchor now."""


@dataclass(frozen=True, slots=True)
class Anchors:
    """CAs that an operator trusts to certify endorsement keys, by the bytes of their subject."""

    by_subject: dict[bytes, tuple[Certificate, ...]]

    @classmethod
    def of(cls, certificates: Sequence[Certificate]) -> "Anchors":
        """Return these as anchors."""
        found: dict[bytes, tuple[Certificate, ...]] = {}
        for certificate in certificates:
            found[certificate.subject] = (*found.get(certificate.subject, ()), certificate)
        return cls(found)


def load_anchors(folder: Path) -> Anchors:
    """Return every CA certificate in the files of a folder, PEM or DER.

    What cannot be used is logged with its file's name and passed over: one vendor's odd root must not
    shut out the machines of the others. Raises `OSError` if the folder or a file cannot be read.
    """
    found: list[Certificate] = []
    for path in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")):
        unusable = 0
        for der in in_file(path.read_bytes()):
            try:
                certificate = read_certificate(der)
                _check_authority(certificate)
            except Malformed:
                unusable += 1
            else:
                found.append(certificate)
        if unusable:
            _log.warning("tpm_anchor_unusable", file=path.name, certificates=unusable)
    return Anchors.of(found)


def check_endorsement(
    shown: bytes, intermediates: Sequence[bytes], ek: Public, anchors: Anchors, at: datetime
) -> Certificate:
    """Return the certificate if it certifies this very key and leads to an anchor at this time.

    `shown` is as an NV index holds it (see `unwrap`); `intermediates` are DER, in any order.

    Raises:
        Malformed: the certificate or an intermediate cannot be read.
        NoChain: anything else is wrong with it.
    """
    if len(intermediates) > MAX_INTERMEDIATES:
        message = "too many intermediates"
        raise NoChain(message)
    leaf = read_certificate(unwrap(shown))
    between = [read_certificate(unwrap(der)) for der in intermediates]
    _check_leaf(leaf)
    if leaf.key != ek.key:
        message = "the certificate is another key's"
        raise NoChain(message)
    check_path(leaf, between, anchors, at)
    return leaf


def _check_leaf(leaf: Certificate) -> None:
    if leaf.critical - _LEAF_CRITICAL:
        message = "a critical extension that is not known"
        raise NoChain(message)
    if leaf.is_authority:
        message = "a CA is no TPM"
        raise NoChain(message)
    # A TPM's owner is named by its certificate's directoryName; a name of another form is a web server's.
    if leaf.alternative_names is not None and leaf.alternative_names != frozenset(
        ("directory_name",)
    ):
        message = "an alternative name that is no directory name"
        raise NoChain(message)
    to_encrypt = (
        "key_agreement" if isinstance(leaf.key, ec.EllipticCurvePublicKey) else "key_encipherment"
    )
    if leaf.purposes is not None and EK_CERTIFICATE not in leaf.purposes:
        message = "another purpose"
        raise NoChain(message)
    if leaf.usage is None and leaf.purposes is None:
        message = "no purpose"
        raise NoChain(message)
    if leaf.usage is not None and to_encrypt not in leaf.usage:
        message = "no key to encrypt to"
        raise NoChain(message)


def _check_authority(certificate: Certificate) -> None:
    if certificate.critical - _CA_CRITICAL:
        message = "a critical extension that is not known"
        raise NoChain(message)
    if not certificate.is_authority:
        message = "no CA"
        raise NoChain(message)
    if certificate.usage is not None and "key_cert_sign" not in certificate.usage:
        message = "a CA that may not certify"
        raise NoChain(message)


def check_path(
    leaf: Certificate, between: Sequence[Certificate], anchors: Anchors, at: datetime
) -> None:
    """Go from issuer to issuer (RFC 5280, 6.1) until an anchor has signed; every step is dated and bounded.

    Raises:
        NoChain: no anchor has.
    """
    costs = 0
    current, depth = leaf, 0
    rest = list(between)
    while True:
        _check_time(current, at)
        candidates = [(c, True) for c in anchors.by_subject.get(current.issuer, ())]
        candidates += [(c, False) for c in rest if c.subject == current.issuer]
        for issuer, trusted in candidates:
            costs += 1
            if costs > _MAX_SIGNATURES:
                message = "too many signatures"
                raise NoChain(message)
            if _may_issue(issuer, depth, at) and _signed_by(current, issuer):
                if trusted:
                    return
                rest.remove(issuer)
                current, depth = issuer, depth + 1
                break
        else:
            message = "no path to an anchor"
            raise NoChain(message)


def _may_issue(issuer: Certificate, depth: int, at: datetime) -> bool:
    try:
        _check_authority(issuer)
        _check_time(issuer, at)
    except NoChain:
        return False
    return issuer.path_length is None or depth <= issuer.path_length


def _check_time(certificate: Certificate, at: datetime) -> None:
    if not certificate.not_before <= at <= certificate.not_after:
        message = "not valid now"
        raise NoChain(message)


def _signed_by(certificate: Certificate, issuer: Certificate) -> bool:
    digest = _HASHES.get(certificate.signature_hash)
    if digest is None:
        return False
    try:
        if isinstance(issuer.key, ec.EllipticCurvePublicKey):
            if certificate.signature_kind != "ecdsa":
                return False
            issuer.key.verify(certificate.signature, certificate.signed, ec.ECDSA(digest))
        else:
            if certificate.signature_kind != "rsassa_pkcs1v15":
                return False
            issuer.key.verify(certificate.signature, certificate.signed, padding.PKCS1v15(), digest)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True
