"""The exact bytes of JSON that machines send, and strict base64.

JSON that machines send is canonical (RFC 8785), so that one content has one digest. The wire
uses only objects, lists, strings, integers below 2**53, booleans and null, and for these orjson
with sorted keys is RFC 8785 (a test holds it against the `rfc8785` package). Keys are ASCII, so
sorting by code point and by UTF-16 unit agree.
"""

import binascii
from typing import Any, cast

import orjson

from watchword.schemas.errors import NotCanonical

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)

_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


def canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return the RFC 8785 bytes of a JSON value without fractions.

    Raises:
        NotCanonical: the value holds a lone surrogate, or what JSON cannot carry.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError as error:  # orjson.JSONEncodeError is one
        raise NotCanonical(type(error).__name__) from error


def parse_canonical(data: bytes) -> dict[str, Any]:
    """Return the object that `data` canonically encodes.

    Duplicate keys, white space, other escapes and a byte order mark all make other bytes when
    the parsed value is encoded again, so one comparison finds every one of them.

    Raises:
        NotCanonical: the bytes are no JSON object, or not the canonical form of one.
    """
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotCanonical(type(error).__name__) from error
    if not isinstance(value, dict):
        message = "not an object"
        raise NotCanonical(message)
    if canonical(value) != data:
        message = "not the canonical form"
        raise NotCanonical(message)
    return cast("dict[str, Any]", value)


def b64(data: bytes) -> str:
    """Return standard base64 with padding (RFC 4648, section 4)."""
    # Not by `base64`, whose own lines cost more than the encoding of what is mostly 32 bytes.
    return binascii.b2a_base64(data, newline=False).decode()


def unb64(text: str) -> bytes:
    """Return the bytes of standard base64; only the one canonical spelling is taken.

    Raises:
        NotCanonical: alphabet, padding or trailing bits are off (`b64decode` alone skips junk).
    """
    try:
        encoded = text.encode("ascii")
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        message = "not base64"
        raise NotCanonical(message) from error
    if binascii.b2a_base64(data, newline=False) != encoded:
        message = "not the canonical base64"
        raise NotCanonical(message)
    return data


def b64url(data: bytes) -> bytes:
    """Return base64url without padding (RFC 7515, section 2)."""
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


def unb64url(text: bytes) -> bytes:
    """Return the bytes of base64url without padding; only the one canonical spelling is taken.

    Raises:
        NotCanonical: alphabet, padding or trailing bits are off.
    """
    try:
        data = binascii.a2b_base64(
            text.translate(_FROM_URL) + b"=" * (-len(text) % 4), strict_mode=True
        )
    except (binascii.Error, ValueError) as error:
        message = "not base64url"
        raise NotCanonical(message) from error
    if b64url(data) != text:
        message = "not the canonical base64url"
        raise NotCanonical(message)
    return data


def length_prefixed(*parts: bytes) -> bytes:
    """Return the parts, each behind its length as four bytes, big endian."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def read_length_prefixed(data: bytes, count: int) -> tuple[bytes, ...]:
    """Return exactly `count` parts that `length_prefixed` joined.

    Raises:
        NotCanonical: a length goes beyond the data, or bytes are left over.
    """
    parts: list[bytes] = []
    at, size, from_bytes = 0, len(data), int.from_bytes
    for _ in range(count):
        start = at + 4
        at = start + from_bytes(data[at:start], "big")
        if at > size:  # also where there are not even four bytes of length
            message = "a length goes beyond the data"
            raise NotCanonical(message)
        parts.append(data[start:at])
    if at != size:
        message = "bytes are left over"
        raise NotCanonical(message)
    return tuple(parts)
