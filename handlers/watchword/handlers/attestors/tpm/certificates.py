"""Certificates as TPM vendors encode them: not always DER, judged over the bytes that came.

Real endorsement certificates have SETs out of order, defaults spelt out and serial numbers with spare zeros;
`cryptography` takes none of these. `asn1crypto` does, and this is the only module that knows it. What is
compared or hashed (names, the signed part) is cut out of the original bytes and never encoded anew.
"""

import importlib
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from watchword.handlers.attestors.tpm.algorithms import CURVES
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import PublicKey

# It has no types, and what is inferred of it is wrong: as Any it has none.
parser: Any = importlib.import_module("asn1crypto.parser")
asn1: Any = importlib.import_module("asn1crypto.x509")

MAX_CERTIFICATE_BYTES = 8 * 1024
_EXPONENT = 65537
_RSA_BITS = range(2048, 8193)
_VENDOR_PREFIX = b"\x10\x01\x00"
_PADDING = (b"\xff", b"\x00")
_SEQUENCE = 0x30
_CA_CURVES = {curve.name: curve for curve in (*CURVES.values(), ec.SECP521R1())}

_UNREADABLE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    UnsupportedAlgorithm,
)
"""What `asn1crypto` raises over hostile bytes: it parses most of them only when asked for it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is judged of a certificate (RFC 5280, 4.1). Names and `signed` are slices of the bytes that came.

    `usage`, `purposes` (dotted) and `alternative_names` (their forms) are None without their extension;
    `path_length` is how many CAs may follow below, None any number. The signature's kind and hash are
    as they are named there, accepted or not: an anchor's own signature is nobody's business.
    """

    signed: bytes
    subject: bytes
    issuer: bytes
    key: PublicKey
    not_before: datetime
    not_after: datetime
    signature: bytes
    signature_kind: str
    signature_hash: str
    usage: frozenset[str] | None
    purposes: frozenset[str] | None
    is_authority: bool
    path_length: int | None
    alternative_names: frozenset[str] | None
    critical: frozenset[str]


def unwrap(data: bytes) -> bytes:
    """Return the certificate in what a TPM's NV index holds.

    Some vendors write `10 01 00` and a UINT16 of length before it (the stored certificate of the TCG's PC
    Client specification for TPM 1.2); indexes of a fixed size are filled up with 0xff or 0x00.

    Raises:
        Malformed: no certificate, a length beyond the data, or anything else left over.
    """
    if data.startswith(_VENDOR_PREFIX):
        size = int.from_bytes(data[3:5], "big")
        data, rest = data[5 : 5 + size], data[5 + size :]
        if len(data) != size or not _is_padding(rest):
            message = "the length before the certificate is not its own"
            raise Malformed(message)
    size = _outer_size(data)
    if not _is_padding(data[size:]):
        message = "bytes are left over behind the certificate"
        raise Malformed(message)
    return data[:size]


def read_certificate(der: bytes) -> Certificate:
    """Return a certificate, parsed to the end.

    Raises:
        Malformed: it is none, is too large, or its key or signature is of a kind that is not accepted.
    """
    if len(der) > MAX_CERTIFICATE_BYTES or _outer_size(der) != len(der):
        message = "a certificate of a size that is not accepted"
        raise Malformed(message)
    try:
        return _certificate(der)
    except _UNREADABLE as error:
        raise Malformed(type(error).__name__) from None


def in_file(data: bytes) -> Iterator[bytes]:
    """Give the certificates of a file: PEM blocks, or else the whole of it as DER."""
    blocks = re.findall(
        rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", data, re.DOTALL
    )
    for block in blocks:
        try:
            yield b64decode(b"".join(block.split()), validate=True)
        except ValueError:
            yield b""
    if not blocks:
        yield data


def _certificate(der: bytes) -> Certificate:
    # The signed part is the first element of the outer sequence, byte for byte.
    outer = parser.parse(der, strict=True)
    content: bytes = outer[4]
    signed = content[: parser.peek(content)]
    whole: Any = asn1.Certificate.load(der, strict=True)
    fields: Any = whole["tbs_certificate"]
    if fields["signature"].dump() != whole["signature_algorithm"].dump():
        message = "two signature algorithms"
        raise Malformed(message)
    algorithm: Any = whole["signature_algorithm"]
    value: Any = whole["signature_value"]
    if (
        value.contents[:1] != b"\0"
    ):  # the parser takes any number of unused bits, and nobody has signed it
        message = "a signature of no whole bytes"
        raise Malformed(message)
    not_before: datetime = fields["validity"]["not_before"].native
    not_after: datetime = fields["validity"]["not_after"].native
    if not_before.tzinfo is None or not_after.tzinfo is None:
        message = "a time without its zone"
        raise Malformed(message)
    extensions = _extensions(fields["extensions"])
    constraints: Any = extensions.get("basic_constraints")
    usage: Any = extensions.get("key_usage")
    purposes: Any = extensions.get("extended_key_usage")
    names: Any = extensions.get("subject_alt_name")
    return Certificate(
        signed=signed,
        subject=fields["subject"].dump(),
        issuer=fields["issuer"].dump(),
        key=_key(fields["subject_public_key_info"]),
        not_before=not_before,
        not_after=not_after,
        signature=value.native,
        signature_kind=algorithm.signature_algo,
        signature_hash=algorithm.hash_algo,
        usage=None if usage is None else frozenset(usage.native),
        purposes=None if purposes is None else frozenset(p.dotted for p in purposes),
        is_authority=constraints is not None and constraints["ca"].native is True,
        path_length=None if constraints is None else constraints["path_len_constraint"].native,
        alternative_names=None if names is None else frozenset(name.name for name in names),
        critical=frozenset(
            e["extn_id"].native for e in fields["extensions"] if e["critical"].native
        ),
    )


def _extensions(found: Any) -> dict[str, Any]:  # noqa: ANN401 - `asn1crypto` has no types
    """Return the parsed value of each extension that is judged; raises `Malformed` on one that comes twice."""
    names: list[str] = [extension["extn_id"].native for extension in found]
    if len(set(names)) != len(names):
        message = "an extension comes twice"
        raise Malformed(message)
    return {
        extension["extn_id"].native: extension["extn_value"].parsed
        for extension in found
        if extension["extn_id"].native
        in ("basic_constraints", "key_usage", "extended_key_usage", "subject_alt_name")
    }


def _key(info: Any) -> PublicKey:  # noqa: ANN401 - `asn1crypto` has no types
    """Return the key of a SubjectPublicKeyInfo; sizes are looked at before OpenSSL sees a number.

    Its parameters are not: endorsement keys come as rsaEncryption and as id-RSAES-OAEP (RFC 4055, 4.1).
    """
    if info.algorithm in ("rsa", "rsaes_oaep"):
        numbers = info["public_key"].parsed
        modulus: int = numbers["modulus"].native
        exponent: int = numbers["public_exponent"].native
        if modulus.bit_length() not in _RSA_BITS or exponent != _EXPONENT:
            message = "an RSA key that is not accepted"
            raise Malformed(message)
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    if info.algorithm == "ec":
        _, name = info.curve
        curve = _CA_CURVES.get(str(name))
        if curve is None:
            message = "a curve that is not accepted"
            raise Malformed(message)
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, info["public_key"].native)
    message = "a key of a kind that is not accepted"
    raise Malformed(message)


def _outer_size(data: bytes) -> int:
    """Return how many bytes the outer SEQUENCE takes; raises `Malformed` unless they are all there."""
    if data[:1] != bytes((_SEQUENCE,)):
        message = "no certificate"
        raise Malformed(message)
    try:
        return int(parser.peek(data))
    except _UNREADABLE:
        message = "a length goes beyond the data"
        raise Malformed(message) from None


def _is_padding(rest: bytes) -> bool:
    return any(rest == fill * len(rest) for fill in _PADDING)
