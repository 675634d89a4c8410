"""Signed documents: JWS in compact form (RFC 7515, 3.1), Ed25519 (RFC 9864), one header shape.

The header is the canonical JSON of exactly `alg`, `kid` and `typ`. The algorithm is ours and is
never read from a token. Serialised here and not by a library, because three concatenations take
half the time of a general serialiser; tests hold it against `joserfc`.
"""

from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import b64url, canonical, parse_canonical, unb64url
from watchword.schemas.errors import NotCanonical

ALGORITHM = "Ed25519"
MAX_TOKEN_BYTES = 512 * 1024
"""What fits into one record of `join.responses`."""

_MAX_HEADER_BYTES = 512
_SIGNATURE_BYTES = 64
_PARTS = 3


class JwsSigner:
    """Signs documents of several types with one key."""

    def __init__(self, kid: str, key: Ed25519PrivateKey) -> None:
        """Take the key's name and the key."""
        self.kid = kid
        self.public = key.public_key().public_bytes_raw()
        """The public key, 32 raw bytes."""
        self._key = key
        self._headers: dict[str, bytes] = {}

    def sign(self, payload: bytes, typ: str) -> bytes:
        """Return the compact serialisation over `payload`; `typ` is one of the schemas' `TYP_…`."""
        header = self._headers.get(typ)
        if header is None:
            header = self._headers[typ] = _header(self.kid, typ) + b"."
        signed = header + b64url(payload)
        return signed + b"." + b64url(self._key.sign(signed))


def verify(token: bytes, public: bytes, *, typ: str, kid: str | None) -> bytes:
    """Return the payload of a token that this key signed as a document of this type.

    `public` is 32 raw bytes of Ed25519; `kid` None takes whatever name the header has.

    Raises:
        SignatureBroken: anything else.
    """
    # 1. Size, before anything is decoded.
    # 2. Three parts in strict base64url (RFC 7515, 2: no padding, no junk, one spelling).
    # 3. The header is canonical JSON of exactly alg, kid and typ: no jwk, jku, x5c, x5u, crit or
    #    anything else (RFC 7515, 4.1), no member twice.
    # 4. The algorithm is ours, the type and the key's name are the expected ones.
    # 5. The signature holds over the two parts as received (RFC 7515, 5.2).

    # Step 1
    if len(token) > MAX_TOKEN_BYTES:
        raise SignatureBroken

    # Step 2
    parts = token.split(b".")
    if len(parts) != _PARTS or len(parts[0]) > _MAX_HEADER_BYTES:
        raise SignatureBroken
    payload, signature = _decode(parts[1]), _decode(parts[2])

    # Step 3
    header = _read_header(parts[0])

    # Step 4
    if header.alg != ALGORITHM or header.typ != typ or kid not in (None, header.kid):
        raise SignatureBroken

    # Step 5
    if len(signature) != _SIGNATURE_BYTES:
        raise SignatureBroken
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, token[: token.rindex(b".")])
    except (InvalidSignature, ValueError):
        raise SignatureBroken from None
    return payload


def unverified_kid(token: bytes) -> str:
    """Return the name of the key that a token says it was signed with, to look the key up by.

    Whoever made the token chose it: `verify` with that key and this name says whether it is true.

    Raises:
        SignatureBroken: there is no header, or none of our shape.
    """
    header, _, _ = token[: _MAX_HEADER_BYTES + 1].partition(b".")
    if len(header) > _MAX_HEADER_BYTES:
        raise SignatureBroken
    return _read_header(header).kid


def unverified_payload(token: bytes) -> bytes:
    """Return the payload of a token whose signature has NOT been checked; raises `SignatureBroken`.

    For the one document that carries its own key: see `keysets.bootstrap_key_set`.
    """
    parts = token.split(b".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != _PARTS:
        raise SignatureBroken
    return _decode(parts[1])


class _Header(NamedTuple):
    alg: object
    kid: str
    typ: object


@lru_cache(
    maxsize=256
)  # who signs much has one header for all of it; whoever makes up others reads each anew
def _read_header(part: bytes) -> _Header:
    """Return the members of a header, unverified; raises `SignatureBroken` unless it is the one shape."""
    try:
        header = parse_canonical(_decode(part))
    except NotCanonical:
        raise SignatureBroken from None
    kid = header.get("kid")
    if header.keys() != {"alg", "kid", "typ"} or not isinstance(kid, str):
        raise SignatureBroken
    return _Header(header["alg"], kid, header["typ"])


@lru_cache(maxsize=16)
def _header(kid: str, typ: str) -> bytes:
    return b64url(canonical({"alg": ALGORITHM, "kid": kid, "typ": typ}))


def _decode(part: bytes) -> bytes:
    """Return the bytes of strict base64url without padding."""
    try:
        return unb64url(part)
    except NotCanonical:
        raise SignatureBroken from None
