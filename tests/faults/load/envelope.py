"""Requests as bytes: real keys, own canonical JSON, own seals (RFC 8785, RFC 9180)."""

import base64
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from tests.faults.judge.documents import canonical, parts_with_lengths

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def b64(data: bytes) -> str:
    """Return standard base64 with padding."""
    return base64.b64encode(data).decode()


def uuid7() -> str:
    """Return a UUIDv7 (RFC 9562, 5.7)."""
    number = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(76)
    number = number & ~(0x3 << 62) | 0x2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """What evidence is sealed to."""

    kid: str
    public: bytes


@dataclass(frozen=True)
class Machine:
    """A machine with a key of its own and one CSR for it."""

    key: PrivateKey = field(default_factory=lambda: new_key())  # noqa: PLW0108 - defined below

    @cached_property
    def csr(self) -> bytes:
        """The CSR, DER; its name is the machine's own affair."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(4))])
        builder = x509.CertificateSigningRequestBuilder().subject_name(name)
        digest = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else SHA256()
        return builder.sign(self.key, digest).public_bytes(Encoding.DER)

    @cached_property
    def csr_sha256(self) -> bytes:
        """What names the CSR everywhere."""
        return sha256(self.csr).digest()

    @cached_property
    def spki(self) -> bytes:
        """The public key, DER."""
        public = self.key.public_key()
        return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @cached_property
    def spki_sha256(self) -> bytes:
        """What names the public key."""
        return sha256(self.spki).digest()

    def twin(self) -> "Machine":
        """Return another CSR of the same key."""
        return Machine(self.key)


def new_key() -> PrivateKey:
    """Return a fresh key, mostly P-256."""
    if secrets.randbelow(4):
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


@dataclass(frozen=True, slots=True)
class Request:
    """One request's bytes, and what is needed to understand its answer."""

    value: bytes = field(repr=False)
    digest: bytes
    request_id: str
    csr_sha256: bytes
    reply_private: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What stands around the evidence; everything in it is bound by the seal."""

    attestor: str = ""
    role: str = "node"
    reply: bool = False
    kind: str = "join"
    sealed_role: str | None = None
    """The role that the seal speaks of, if it shall be another than the envelope's."""
    request_id: str | None = None
    """The request's id, if the evidence has to name it."""


def make_request(
    machine: Machine,
    plaintext: bytes,
    encryption: EncryptionKey,
    envelope: Envelope | None = None,
    *,
    csr: bytes | None = None,
    state: bytes | None = None,
) -> Request:
    """Return a request that shows `plaintext`; `csr` stands in for the machine's own, unchanged.

    `state` is what came with a challenge.
    """
    envelope = envelope or Envelope()
    csr = machine.csr if csr is None else csr
    request_id = envelope.request_id or uuid7()
    reply_key = x25519.X25519PrivateKey.generate() if envelope.reply else None
    reply_public = b"" if reply_key is None else reply_key.public_key().public_bytes_raw()
    digest = sha256(csr).digest()
    info = b"watchword join v1" + parts_with_lengths(
        b"1",
        envelope.kind.encode(),
        request_id.encode(),
        (envelope.attestor or "join-token").encode(),
        (envelope.sealed_role or envelope.role).encode(),
        encryption.kid.encode(),
        reply_public,
        b"" if state is None else sha256(state).digest(),
        digest,
    )
    public = x25519.X25519PublicKey.from_public_bytes(encryption.public)
    value = canonical(
        {
            "attestor": envelope.attestor,
            "csr": b64(csr),
            "encryptionKeyId": encryption.kid,
            "kind": envelope.kind,
            "replyKey": b64(reply_public) if reply_public else None,
            "requestId": request_id,
            "role": envelope.role,
            "sealed": b64(_SUITE.encrypt(plaintext, public, info=info)),
            "state": None if state is None else b64(state),
            "version": 1,
        }
    )
    private = None if reply_key is None else reply_key.private_bytes_raw()
    return Request(value, sha256(value).digest(), request_id, digest, private)


def token_evidence(token_id: str, secret: bytes) -> bytes:
    """Return the payload that shows a join token."""
    return parts_with_lengths(token_id.encode(), secret)


def plaintext(payload: bytes, claims: Mapping[str, object] | None = None) -> bytes:
    """Return what is sealed: the attestor's payload and the machine's claims."""
    return parts_with_lengths(payload, canonical(claims) if claims else b"")


def junk(size: int = 40) -> bytes:
    """Return bytes that are no request."""
    return os.urandom(size)
