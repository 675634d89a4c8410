"""Signed answers, read from first principles: RFC 7515, RFC 8785 and RFC 9180 without our code."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_ED25519_SPKI = bytes.fromhex("302a300506032b6570032100")
_PAD = 512


class Unreadable(Exception):
    """The document is not what it must be; the message says in which way."""


def canonical(value: object) -> bytes:
    """Return the canonical JSON of a value without fractions (RFC 8785)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parts_with_lengths(*parts: bytes) -> bytes:
    """Return the parts, each behind its length as four bytes, big endian."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def pin_of(public: bytes) -> str:
    """Return the pin of 32 raw bytes of Ed25519: the SHA-256 of its SubjectPublicKeyInfo."""
    return f"sha256:{hashlib.sha256(_ED25519_SPKI + public).hexdigest()}"


def read_jws(token: bytes, public: bytes, typ: str) -> dict[str, Any]:
    """Return the payload of a JWS that this Ed25519 key signed as a document of this type.

    Raises:
        Unreadable: it is not that.
    """
    pieces = token.split(b".")
    if len(pieces) != 3:
        message = "not three parts"
        raise Unreadable(message)
    head, body, signature = (_b64url(piece) for piece in pieces)
    header = _object(head)
    if header.keys() != {"alg", "kid", "typ"}:
        message = f"header has {sorted(header)}"
        raise Unreadable(message)
    if header["alg"] != "Ed25519" or header["typ"] != typ:
        message = f"header says {header['alg']} {header['typ']}"
        raise Unreadable(message)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, token[: token.rindex(b".")])
    except InvalidSignature:
        message = "signature"
        raise Unreadable(message) from None
    return _object(body)


def pinned_key_set(token: bytes, pin: str) -> tuple[bytes, dict[str, Any]]:
    """Return the signing key, 32 raw bytes, and the key set that it signed.

    Raises:
        Unreadable: the key has another pin, or the signature is not its.
    """
    claimed = _object(_b64url(token.split(b".")[1]))
    public = base64.b64decode(claimed["signing"]["public"])
    if pin_of(public) != pin:
        message = "the key set is by another key than the pinned one"
        raise Unreadable(message)
    return public, read_jws(token, public, "watchword-key-set")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one record of `join.responses` says."""

    request_sha256: bytes
    outcome: str
    """`joined`, `refused`, `deferred`, or a failure's code."""
    said: bytes = field(repr=False)
    """The canonical JSON of `payload`, which takes a fraction of the memory."""
    was_sealed: bool
    size: int
    """Bytes of the record's value."""

    @property
    def payload(self) -> dict[str, Any]:
        """All that it says."""
        payload: dict[str, Any] = json.loads(self.said)
        return payload

    @property
    def node(self) -> str | None:
        """The node's id, where there is one."""
        return str(self.payload["joined"]["nodeId"]) if self.outcome == "joined" else None

    @property
    def leaf(self) -> bytes | None:
        """The node's certificate, DER, where there is one."""
        if self.outcome != "joined":
            return None
        return base64.b64decode(self.payload["joined"]["chain"][0])


def read_answer(value: bytes, public: bytes, reply_keys: dict[bytes, bytes]) -> Answer:
    """Return what a signed answer says; `reply_keys` are X25519 keys by the digest of the request.

    Raises:
        Unreadable: signature, seal or form are not right.
    """
    payload = read_jws(value, public, "watchword-response")
    digest = bytes.fromhex(payload["requestSha256"])
    if was_sealed := "sealed" in payload:
        if payload.keys() != {"requestSha256", "issuedAt", "sealed"}:
            message = f"a sealed answer shows {sorted(payload)}"
            raise Unreadable(message)
        payload = opened(payload["sealed"], digest, reply_keys)
        if bytes.fromhex(payload["requestSha256"]) != digest:
            message = "the sealed answer is to another request"
            raise Unreadable(message)
    outcome = str(payload["outcome"])
    expected = {"requestSha256", "requestId", "csrSha256", "issuedAt", "outcome", outcome}
    if payload.keys() != expected:
        message = f"members {sorted(payload)}"
        raise Unreadable(message)
    if outcome == "failed":
        outcome = str(payload["failed"]["code"])
    return Answer(digest, outcome, canonical(payload), was_sealed, len(value))


def body_of(token: bytes) -> dict[str, Any]:
    """Return what a JWS says, whoever signed it; raises `Unreadable`, `IndexError`."""
    return _object(_b64url(token.split(b".")[1]))


def opened(sealed: str, digest: bytes, reply_keys: dict[bytes, bytes]) -> dict[str, Any]:
    """Return what a sealed answer to the request of this digest says; raises `Unreadable`."""
    private = reply_keys.get(digest)
    if private is None:
        message = "sealed, and nobody asked for that"
        raise Unreadable(message)
    key = X25519PrivateKey.from_private_bytes(private)
    info = b"watchword response v1" + parts_with_lengths(digest)
    try:
        plain = _SUITE.decrypt(base64.b64decode(sealed), key, info=info)
    except (InvalidTag, ValueError):
        message = "does not open"
        raise Unreadable(message) from None
    if len(plain) % _PAD:
        message = "padding"
        raise Unreadable(message)
    return _object(plain[4 : 4 + int.from_bytes(plain[:4], "big")])


def _object(data: bytes) -> dict[str, Any]:
    """Return a canonical JSON object."""
    try:
        value = json.loads(data)
    except ValueError:
        message = "not JSON"
        raise Unreadable(message) from None
    if not isinstance(value, dict) or canonical(value) != data:
        message = "not a canonical object"
        raise Unreadable(message)
    return value


def _b64url(piece: bytes) -> bytes:
    try:
        return base64.b64decode(piece + b"=" * (-len(piece) % 4), altchars=b"-_", validate=True)
    except ValueError:
        message = "not base64url"
        raise Unreadable(message) from None
