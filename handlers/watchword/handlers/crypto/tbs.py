"""The TBSCertificate (RFC 5280, 4.1) of the profile, put together from bytes made beforehand.

`cryptography`'s builder takes twice the time of the signature itself, most of it for parts that
never change, and it wants the private key, which a hardware module keeps. A test holds every byte
against that builder.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256

from watchword.handlers.crypto import der

_VERSION_3 = bytes.fromhex("a003020102")
_NO_NAME = bytes.fromhex("3000")
_CA_FALSE = bytes.fromhex("300c0603551d130101ff04023000")
_DIGITAL_SIGNATURE = bytes.fromhex("300e0603551d0f0101ff040403020780")
_CLIENT_AUTH = bytes.fromhex("30130603551d25040c300a06082b06010505070302")
_AUTHORITY_KEY = bytes.fromhex("0603551d23")
_SUBJECT_KEY = bytes.fromhex("0603551d0e")
_CRITICAL_NAMES = bytes.fromhex("0603551d110101ff")

_KEY_IDENTIFIER = 0x80
_URI = 0x86
_EXTENSIONS = 0xA3
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_GENERALIZED_FROM = 2050

KEY_IDENTIFIER_BYTES = 20

_SUBJECT_KEY_HEAD = der.tlv(
    der.SEQUENCE,
    _SUBJECT_KEY
    + der.tlv(der.OCTET_STRING, der.tlv(der.OCTET_STRING, bytes(KEY_IDENTIFIER_BYTES))),
)[:-KEY_IDENTIFIER_BYTES]
"""The extension up to the identifier, whose length never changes."""


class TbsTemplate:
    """What all certificates of one issuer have in common."""

    def __init__(
        self, *, issuer_name: bytes, issuer_key_identifier: bytes, signature_algorithm: bytes
    ) -> None:
        """Take the issuer's Name, key identifier and the AlgorithmIdentifier it signs with, DER."""
        self._issuer = signature_algorithm + issuer_name
        authority = der.tlv(der.SEQUENCE, der.tlv(_KEY_IDENTIFIER, issuer_key_identifier))
        authority = der.tlv(der.SEQUENCE, _AUTHORITY_KEY + der.tlv(der.OCTET_STRING, authority))
        self._constant_extensions = _CA_FALSE + _DIGITAL_SIGNATURE + _CLIENT_AUTH + authority

    def fill(
        self,
        *,
        serial: bytes,
        not_before: datetime,
        not_after: datetime,
        spki_der: bytes,
        key_identifier: bytes,
        uris: Sequence[bytes],
    ) -> bytes:
        """Return the DER of one TBSCertificate. Everything in it has been checked by the caller."""
        names = der.tlv(der.SEQUENCE, b"".join([der.tlv(_URI, uri) for uri in uris]))
        extensions = (
            der.tlv(der.SEQUENCE, _CRITICAL_NAMES + der.tlv(der.OCTET_STRING, names))
            + self._constant_extensions
            + _SUBJECT_KEY_HEAD
            + key_identifier
        )
        return der.tlv(
            der.SEQUENCE,
            _VERSION_3
            + der.unsigned(int.from_bytes(serial, "big"))
            + self._issuer
            + _validity(not_before, not_after)
            + _NO_NAME
            + spki_der
            + der.tlv(_EXTENSIONS, der.tlv(der.SEQUENCE, extensions)),
        )


def key_identifier(public_key_bits: bytes) -> bytes:
    """Return 160 bits of SHA-256 over the content of an SPKI's BIT STRING (RFC 7093, 2, method 1)."""
    return sha256(public_key_bits).digest()[:KEY_IDENTIFIER_BYTES]


@lru_cache(maxsize=64)  # a batch has one
def _validity(not_before: datetime, not_after: datetime) -> bytes:
    return der.tlv(der.SEQUENCE, _time(not_before) + _time(not_after))


def _time(at: datetime) -> bytes:
    """Return UTCTime through 2049, GeneralizedTime after it (RFC 5280, 4.1.2.5), whole seconds."""
    at = at.astimezone(UTC)
    if at.year < _GENERALIZED_FROM:
        return der.tlv(_UTC_TIME, f"{at:%y%m%d%H%M%SZ}".encode())
    return der.tlv(_GENERALIZED_TIME, f"{at:%Y%m%d%H%M%SZ}".encode())
