"""CMS SignedData (RFC 5652): read by `asn1crypto`, because clouds send BER; verified by `cryptography`.

Exactly one signer, its content inside, and a short list of algorithms. Certificates that lie in the
CMS are strangers' until a chain says otherwise; the one that SignerInfo names is the one that counts.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from asn1crypto import cms as _cms
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, padding, rsa

from watchword.handlers.attestors.cloud_iid.ber import check_bounds
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_CERTIFICATES = 8
MAX_CERTIFICATE_BYTES = 8 * 1024

CMS: Any = _cms
"""`asn1crypto` has no annotations."""

_DIGESTS = {
    "sha1": "sha1",
    "sha256": "sha256",
    "sha384": "sha384",
    "sha512": "sha512",
    # Azure names the signature algorithm where the digest algorithm belongs.
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
}
_SIGNATURES: dict[str, tuple[str, str | None]] = {
    "rsassa_pkcs1v15": ("rsa", None),
    "sha256_rsa": ("rsa", "sha256"),
    "sha384_rsa": ("rsa", "sha384"),
    "sha512_rsa": ("rsa", "sha512"),
    "sha256_ecdsa": ("ec", "sha256"),
    "sha384_ecdsa": ("ec", "sha384"),
    "sha512_ecdsa": ("ec", "sha512"),
    "sha1_dsa": ("dsa", "sha1"),
    "dsa": ("dsa", None),
}
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
_UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What reading hostile bytes with `asn1crypto` raises: it parses only what it is asked for, when it is asked."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A SignedData with one signer, nothing of it verified yet."""

    content: bytes
    certificates: tuple[bytes, ...]
    """DER of the certificates that lie in it, in their order there."""
    signer: tuple[bytes, int]
    """The signer's name: its issuer's name (DER) and serial number."""
    signed: bytes
    """What the signature is over: the content, or the signed attributes that hold its digest."""
    attributes: bool
    """Whether there are signed attributes."""
    scheme: str
    """`rsa`, `ec` or `dsa`."""
    digest: str
    signature: bytes


def read(data: bytes) -> Signed:
    """Return what a SignedData says, from BER or DER.

    Raises:
        Unproven: `cms-…`, see `REASONS`.
    """
    check_bounds(data)
    try:
        return _read(data)
    except _UNREADABLE:
        raise Unproven("cms-malformed") from None


def _read(data: bytes) -> Signed:
    info = CMS.ContentInfo.load(data, strict=True)
    if info["content_type"].native != "signed_data":
        raise Unproven("cms-malformed")
    signed_data = info["content"]

    # One signer: with two, "signed by" has two meanings.
    if len(signed_data["signer_infos"]) != 1:
        raise Unproven("cms-signers")
    signer = signed_data["signer_infos"][0]
    if signer["sid"].name != "issuer_and_serial_number":
        raise Unproven("cms-certificate")
    sid = signer["sid"].chosen

    wrapped = signed_data["encap_content_info"]
    if wrapped["content_type"].native != "data":
        raise Unproven("cms-malformed")
    content = wrapped["content"].native
    if not isinstance(content, bytes) or not content:
        raise Unproven("cms-detached")

    digest = _DIGESTS.get(signer["digest_algorithm"]["algorithm"].native)
    scheme, implied = _SIGNATURES.get(
        signer["signature_algorithm"]["algorithm"].native, (None, None)
    )
    if digest is None or scheme is None or implied not in (None, digest):
        raise Unproven("cms-algorithm")

    attributes = signer["signed_attrs"]
    # `native` would say it as well, and turn everything below into Python's own types for it.
    present = isinstance(attributes, CMS.CMSAttributes)
    if present:
        _check_attributes(attributes, content, digest, signer)
    return Signed(
        content=content,
        certificates=_certificates(signed_data["certificates"]),
        signer=(sid["issuer"].dump(), sid["serial_number"].native),
        # Signed under the universal SET OF tag, not under the [0] that it travels with (RFC 5652, 5.4).
        signed=attributes.untag().dump() if present else content,
        attributes=present,
        scheme=scheme,
        digest=digest,
        signature=signer["signature"].native,
    )


def _check_attributes(attributes: Any, content: bytes, digest: str, signer: Any) -> None:  # noqa: ANN401 - see `CMS`
    """Hold the signed attributes against the content (RFC 5652, 11.1 and 11.2; RFC 6211)."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute["type"].native
        if name in found or len(attribute["values"]) != 1:
            raise Unproven("cms-attributes")
        found[name] = attribute["values"][0]
    if "content_type" not in found or "message_digest" not in found:
        raise Unproven("cms-attributes")
    if found["content_type"].native != "data":
        raise Unproven("cms-attributes")
    if found["message_digest"].native != hashlib.new(digest, content).digest():
        raise Unproven("cms-attributes")
    protection = found.get("cms_algorithm_protection")
    if protection is not None and (
        protection["digest_algorithm"].dump() != signer["digest_algorithm"].dump()
        or protection["signature_algorithm"]["algorithm"].native
        != signer["signature_algorithm"]["algorithm"].native
    ):
        raise Unproven("cms-attributes")


def _certificates(choices: Any) -> tuple[bytes, ...]:  # noqa: ANN401 - see `CMS`
    if not isinstance(choices, CMS.CertificateSet):
        return ()
    if len(choices) > MAX_CERTIFICATES:
        raise Unproven("cms-certificate")
    found: list[bytes] = []
    for choice in choices:
        if choice.name != "certificate":
            raise Unproven("cms-certificate")
        encoded: bytes = choice.chosen.dump()
        if len(encoded) > MAX_CERTIFICATE_BYTES:
            raise Unproven("cms-certificate")
        found.append(encoded)
    return tuple(found)


def named_certificate(signed: Signed) -> bytes:
    """Return the DER of the one certificate inside that SignerInfo names.

    Raises:
        Unproven: `cms-certificate`: none has that name, or two have.
    """
    found = [der for der in signed.certificates if names(signed, der)]
    if len(found) != 1:
        raise Unproven("cms-certificate")
    return found[0]


def names(signed: Signed, certificate: bytes) -> bool:
    """Tell whether SignerInfo names this certificate (DER)."""
    try:
        tbs = CMS.Certificate.load(certificate, strict=True)["tbs_certificate"]
        return signed.signer == (tbs["issuer"].dump(), tbs["serial_number"].native)
    except _UNREADABLE:
        raise Unproven("cms-certificate") from None


def verify(signed: Signed, certificate: x509.Certificate, *, unsafe_dsa: bool = False) -> None:
    """Return only if this certificate's key made the signature.

    `unsafe_dsa` takes DSA with SHA-1, which AWS still offers; both are broken by today's measure.

    Raises:
        Unproven: `legacy-signature`, `cms-algorithm` or `signature`.
    """
    key = certificate.public_key()
    try:
        if signed.scheme == "dsa" and isinstance(key, dsa.DSAPublicKey):
            if not unsafe_dsa:
                raise Unproven("legacy-signature")
            digest = hashes.SHA1() if signed.digest == "sha1" else _HASHES[signed.digest]  # noqa: S303 - the caller says so
            key.verify(signed.signature, signed.signed, digest)
        elif signed.digest == "sha1":
            raise Unproven("cms-algorithm")
        elif signed.scheme == "rsa" and isinstance(key, rsa.RSAPublicKey):
            key.verify(signed.signature, signed.signed, padding.PKCS1v15(), _HASHES[signed.digest])
        elif signed.scheme == "ec" and isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signed.signature, signed.signed, ec.ECDSA(_HASHES[signed.digest]))
        else:
            raise Unproven("cms-algorithm")
    except (InvalidSignature, ValueError):
        raise Unproven("signature") from None
