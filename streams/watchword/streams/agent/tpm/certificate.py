"""Endorsement certificates that a machine was handed: as DER, as PEM, or as a vendor's service answers."""

import json
import re
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as NotBase64
from typing import cast

from watchword.handlers.errors import BadArgument

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE = 0x30
_VENDOR_PREFIX = b"\x10\x01\x00"


def read_endorsement(data: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the certificate of an endorsement key, and the certificates behind it, as DER.

    A service such as Intel's answers with a JSON object whose `certificate` is base64url, percent signs and
    all; PEM may have the vendor's CAs below the first block. What NV indexes hold is passed on as it is.

    Raises:
        BadArgument: none of these.
    """
    found = [_decoded(block) for block in _PEM.findall(data)]
    if found:
        return found[0], tuple(found[1:])
    if data[:1] == b"{":
        return _from_json(data), ()
    if data[:1] == bytes((_SEQUENCE,)) or data.startswith(_VENDOR_PREFIX):
        return data, ()
    message = "this is no endorsement certificate: neither DER, PEM nor a vendor's JSON"
    raise BadArgument(message)


def _decoded(block: bytes) -> bytes:
    try:
        return b64decode(b"".join(block.split()), validate=True)
    except NotBase64:
        message = "a certificate's PEM is not base64"
        raise BadArgument(message) from None


def _from_json(data: bytes) -> bytes:
    try:
        said: object = json.loads(data)
        text = cast("dict[str, object]", said)["certificate"] if isinstance(said, dict) else None
        if not isinstance(text, str):
            raise TypeError  # noqa: TRY301 - as any other that is none
        # Percent signs stand for the padding in what is meant to be part of a URL.
        bare = text.replace("%3D", "").rstrip("=")
        der = urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except (ValueError, KeyError, TypeError):
        message = "a vendor's JSON has its certificate in `certificate`, as base64url"
        raise BadArgument(message) from None
    if der[:1] != bytes((_SEQUENCE,)):
        message = "what the vendor's JSON holds is no certificate"
        raise BadArgument(message)
    return der
