"""CMS SignedData (RFC 5652), as clouds send it in BER: read from `ber`'s one pass, verified by `cryptography`.

Exactly one signer, its content inside, and a short list of algorithms. Certificates that lie in the
CMS are strangers' until a chain says otherwise; the one that SignerInfo names is the one that counts.
`asn1crypto` gives the names of algorithms and reads certificates' names; its model of a SignedData costs
twice the rest of a join, and is what the tests hold this reading against (docs/decisions/cloud-iid.md).
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from asn1crypto import cms as _cms
from asn1crypto.algos import SignedDigestAlgorithmId
from asn1crypto.core import ObjectIdentifier
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, padding, rsa

from watchword.handlers.attestors.cloud_iid import ber
from watchword.handlers.attestors.cloud_iid.ber import CONSTRUCTED, Element
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_CERTIFICATES = 8
MAX_CERTIFICATE_BYTES = 8 * 1024

CMS: Any = _cms
"""`asn1crypto` has no annotations."""

_CONTENT, _ATTRIBUTES, _CERTIFICATES, _REVOCATIONS, _UNSIGNED = 0xA0, 0xA0, 0xA0, 0xA1, 0xA1
"""Tags of context, by what they are for in the type that they are in."""


_ObjectIdentifier: Any = ObjectIdentifier
_SignedDigestAlgorithmId: Any = SignedDigestAlgorithmId


def _oid(name: str, kind: Any) -> bytes:  # noqa: ANN401 - see `CMS`
    found: bytes = kind(name).contents
    return found


_SIGNED_DATA = _oid("signed_data", CMS.ContentType)
_DATA = _oid("data", CMS.ContentType)
_CONTENT_TYPE = _oid("content_type", CMS.CMSAttributeType)
_MESSAGE_DIGEST = _oid("message_digest", CMS.CMSAttributeType)
_PROTECTION = _oid("cms_algorithm_protection", CMS.CMSAttributeType)

_DIGESTS = {
    _oid(name, _ObjectIdentifier): digest
    for name, digest in (
        ("1.3.14.3.2.26", "sha1"),
        ("2.16.840.1.101.3.4.2.1", "sha256"),
        ("2.16.840.1.101.3.4.2.2", "sha384"),
        ("2.16.840.1.101.3.4.2.3", "sha512"),
        # Azure names the signature algorithm where the digest algorithm belongs.
        ("1.2.840.113549.1.1.11", "sha256"),
        ("1.2.840.113549.1.1.12", "sha384"),
        ("1.2.840.113549.1.1.13", "sha512"),
    )
}
_SIGNATURES: dict[bytes, tuple[str, str | None]] = {
    _oid(name, _SignedDigestAlgorithmId): said
    for name, said in (
        ("rsassa_pkcs1v15", ("rsa", None)),
        ("sha256_rsa", ("rsa", "sha256")),
        ("sha384_rsa", ("rsa", "sha384")),
        ("sha512_rsa", ("rsa", "sha512")),
        ("sha256_ecdsa", ("ec", "sha256")),
        ("sha384_ecdsa", ("ec", "sha384")),
        ("sha512_ecdsa", ("ec", "sha512")),
        ("sha1_dsa", ("dsa", "sha1")),
        ("dsa", ("dsa", None)),
    )
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
"""What reading a hostile certificate with `asn1crypto` raises: it parses only what it is asked for, when it is asked."""

VerifyingKey = Any
"""A public key of `cryptography`, of whatever kind."""


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
    # 1. The bounds, and the elements (RFC 5652, 3: ContentInfo; 5.1: SignedData).
    # 2. One signer: with two, "signed by" has two meanings (5.3: SignerInfo).
    # 3. The content, inside.
    # 4. The algorithms.
    # 5. The signed attributes, if there are any: about this content, and each there once.
    # 6. The certificates, which nothing is believed of yet.

    # Step 1
    info = ber.parse(data)
    kind, wrapped = _parts(info, ber.SEQUENCE, 2)
    if _value(data, kind, ber.OID) != _SIGNED_DATA:
        raise Unproven("cms-malformed")
    (signed_data,) = _parts(wrapped, _CONTENT, 1)
    if signed_data.tag != ber.SEQUENCE or len(signed_data.parts) < _LEAST_PARTS:
        raise Unproven("cms-malformed")
    version, digests, content_info, *choices, signers = signed_data.parts
    if (version.tag, digests.tag, signers.tag) != (ber.INTEGER, ber.SET, ber.SET):
        raise Unproven("cms-malformed")

    # Step 2
    if len(signers.parts) != 1:
        raise Unproven("cms-signers")
    signer = _signer(data, signers.parts[0])

    # Step 3
    content = _content(data, content_info)

    # Step 4
    digest = _DIGESTS.get(_algorithm(data, signer.digest))
    scheme, implied = _SIGNATURES.get(_algorithm(data, signer.algorithm), (None, None))
    if digest is None or scheme is None or implied not in (None, digest):
        raise Unproven("cms-algorithm")

    # Step 5
    signed = content
    if signer.attributes is not None:
        _check_attributes(data, signer, content, digest)
        # Signed under the universal SET OF tag, not under the [0] that it travels with (5.4).
        signed = b"\x31" + data[signer.attributes.begin + 1 : signer.attributes.end]

    # Step 6
    return Signed(
        content=content,
        certificates=_certificates(data, choices),
        signer=(signer.issuer, signer.serial),
        signed=signed,
        attributes=signer.attributes is not None,
        scheme=scheme,
        digest=digest,
        signature=signer.signature,
    )


_LEAST_PARTS = 4


@dataclass(frozen=True, slots=True)
class _Signer:
    """A SignerInfo (RFC 5652, 5.3)."""

    issuer: bytes
    serial: int
    digest: Element
    attributes: Element | None
    algorithm: Element
    signature: bytes


def _signer(data: bytes, info: Element) -> _Signer:
    if info.tag != ber.SEQUENCE:
        raise Unproven("cms-malformed")
    version, sid, digest, *rest = _at_least(info.parts, 5)
    attributes = rest.pop(0) if rest[0].tag == _ATTRIBUTES else None
    algorithm, signature, *unsigned = _at_least(rest, 2)
    if version.tag != ber.INTEGER or [part.tag for part in unsigned] not in ([], [_UNSIGNED]):
        raise Unproven("cms-malformed")
    if sid.tag != ber.SEQUENCE:
        raise Unproven("cms-certificate")  # by a key's id: the clouds name issuer and number
    issuer, serial = _parts(sid, ber.SEQUENCE, 2)
    if issuer.tag != ber.SEQUENCE:
        raise Unproven("cms-malformed")
    return _Signer(
        data[issuer.begin : issuer.end],
        int.from_bytes(_value(data, serial, ber.INTEGER), "big", signed=True),
        digest,
        attributes,
        algorithm,
        _value(data, signature, ber.OCTETS),
    )


def _content(data: bytes, info: Element) -> bytes:
    """Return the content of an EncapsulatedContentInfo (RFC 5652, 5.2), which may be in pieces (X.690, 8.7.3)."""
    if info.tag != ber.SEQUENCE or not info.parts:
        raise Unproven("cms-malformed")
    kind, *wrapped = info.parts
    if _value(data, kind, ber.OID) != _DATA:
        raise Unproven("cms-malformed")
    if not wrapped:
        raise Unproven("cms-detached")
    if len(wrapped) > 1:
        raise Unproven("cms-malformed")
    (octets,) = _parts(wrapped[0], _CONTENT, 1)
    if octets.tag == ber.OCTETS | CONSTRUCTED:
        content = b"".join(_value(data, piece, ber.OCTETS) for piece in octets.parts)
    else:
        content = _value(data, octets, ber.OCTETS)
    if not content:
        raise Unproven("cms-detached")
    return content


def _check_attributes(data: bytes, signer: _Signer, content: bytes, digest: str) -> None:
    """Hold the signed attributes against the content (RFC 5652, 11.1 and 11.2; RFC 6211)."""
    attributes = signer.attributes
    if attributes is None or not _is_definite(attributes):
        raise Unproven("cms-attributes")  # they are signed as DER
    found: dict[bytes, Element] = {}
    for attribute in attributes.parts:
        if attribute.tag != ber.SEQUENCE or len(attribute.parts) != 2:  # noqa: PLR2004 - type and values
            raise Unproven("cms-malformed")
        kind, values = attribute.parts
        name = _value(data, kind, ber.OID)
        if values.tag != ber.SET:
            raise Unproven("cms-malformed")
        if name in found or len(values.parts) != 1:
            raise Unproven("cms-attributes")
        found[name] = values.parts[0]
    if _CONTENT_TYPE not in found or _MESSAGE_DIGEST not in found:
        raise Unproven("cms-attributes")
    if _value(data, found[_CONTENT_TYPE], ber.OID) != _DATA:
        raise Unproven("cms-attributes")
    said = _value(data, found[_MESSAGE_DIGEST], ber.OCTETS)
    if said != hashlib.new(digest, content).digest():
        raise Unproven("cms-attributes")
    if _PROTECTION in found:
        _check_protection(data, signer, found[_PROTECTION])


def _check_protection(data: bytes, signer: _Signer, said: Element) -> None:
    """Hold the algorithms that are signed against those that are used (RFC 6211, 2)."""
    if said.tag != ber.SEQUENCE or len(said.parts) != 2:  # noqa: PLR2004 - digest and signature
        raise Unproven("cms-attributes")
    digest, algorithm = said.parts
    used = signer.digest
    if algorithm.tag != 0xA1 or not algorithm.parts:  # noqa: PLR2004 - [1] signatureAlgorithm
        raise Unproven("cms-attributes")
    if data[digest.begin : digest.end] != data[used.begin : used.end]:
        raise Unproven("cms-attributes")
    if _value(data, algorithm.parts[0], ber.OID) != _algorithm(data, signer.algorithm):
        raise Unproven("cms-attributes")


def _certificates(data: bytes, choices: list[Element]) -> tuple[bytes, ...]:
    """Return the certificates (RFC 5652, 10.2.3); of revocations, which may follow them, nothing is read."""
    tags = [choice.tag for choice in choices]
    if tags not in ([], [_CERTIFICATES], [_REVOCATIONS], [_CERTIFICATES, _REVOCATIONS]):
        raise Unproven("cms-malformed")
    if not tags or tags[0] != _CERTIFICATES:
        return ()
    found = choices[0].parts
    if len(found) > MAX_CERTIFICATES or any(
        each.tag != ber.SEQUENCE or each.end - each.begin > MAX_CERTIFICATE_BYTES for each in found
    ):
        raise Unproven("cms-certificate")
    return tuple(data[each.begin : each.end] for each in found)


def _parts(element: Element, tag: int, count: int) -> list[Element]:
    if element.tag != tag or len(element.parts) != count:
        raise Unproven("cms-malformed")
    return element.parts


def _at_least(parts: list[Element], count: int) -> list[Element]:
    if len(parts) < count:
        raise Unproven("cms-malformed")
    return parts[:]


def _value(data: bytes, element: Element, tag: int) -> bytes:
    """Return the content of a primitive element."""
    if element.tag != tag or element.content == element.limit:
        raise Unproven("cms-malformed")
    return data[element.content : element.limit]


def _algorithm(data: bytes, identifier: Element) -> bytes:
    """Return the OID of an AlgorithmIdentifier; its parameters are nobody's business here."""
    if identifier.tag != ber.SEQUENCE or not 1 <= len(identifier.parts) <= 2:  # noqa: PLR2004 - with parameters
        raise Unproven("cms-malformed")
    return _value(data, identifier.parts[0], ber.OID)


def _is_definite(element: Element) -> bool:
    waiting = [element]
    while waiting:
        at = waiting.pop()
        if not at.is_definite:
            return False
        waiting += [part for part in at.parts if part.tag & CONSTRUCTED]  # only these can be
    return True


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
    return signed.signer == _named(certificate)


@lru_cache(maxsize=512)
def _named(certificate: bytes) -> tuple[bytes, int]:
    """Return issuer (DER) and serial number of a certificate; those of a cloud come again and again."""
    try:
        tbs = CMS.Certificate.load(certificate, strict=True)["tbs_certificate"]
        return tbs["issuer"].dump(), tbs["serial_number"].native
    except _UNREADABLE:
        raise Unproven("cms-certificate") from None


def verify(signed: Signed, key: VerifyingKey, *, unsafe_dsa: bool = False) -> None:
    """Return only if this key, a certificate's, made the signature.

    `unsafe_dsa` takes DSA with SHA-1, which AWS still offers; both are broken by today's measure.

    Raises:
        Unproven: `legacy-signature`, `cms-algorithm` or `signature`.
    """
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
