"""Machines that join: keys and CSRs, kept from run to run, and requests, sealed anew for each run.

The keys are of nobody; they are kept because 100,000 of them take a
minute, in the folder that is named.
"""

import multiprocessing
import os
import secrets
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from uuid_utils.compat import uuid7

from watchword.handlers.attestors.join_token.evidence import encode
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.schemas.canonical import b64, length_prefixed
from watchword.schemas.requests import Claims, JoinRequest

A = TypeVar("A")
B = TypeVar("B")

_CHUNK = 250
_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's P-256 key (PKCS #8, DER) and its CSR (DER)."""

    key: bytes
    csr: bytes


@dataclass(frozen=True, slots=True)
class Token:
    """A join token: its public id and its secret."""

    id: str
    secret: bytes

    @classmethod
    def new(cls) -> "Token":
        """Return a fresh one."""
        name = "".join(secrets.choice(_ALPHABET) for _ in range(16))
        return cls(name, secrets.token_bytes(32))

    @property
    def secret_sha256(self) -> bytes:
        """What is stored of the secret."""
        return sha256(self.secret).digest()


@dataclass(frozen=True, slots=True)
class SealTo:
    """The deployment's encryption key."""

    kid: str
    public: bytes


def machines(count: int, folder: Path) -> list[Machine]:
    """Return this many machines, those of earlier runs first."""
    file = folder / "machines-p256.bin"
    parts = read_parts(file)
    missing = count - len(parts) // 2
    if missing > 0:
        folder.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        made = _in_parallel(_machine, range(missing))
        with file.open("ab") as kept:
            for machine in made:
                kept.write(length_prefixed(machine.key, machine.csr))
        parts += [part for machine in made for part in (machine.key, machine.csr)]
    return [Machine(parts[at], parts[at + 1]) for at in range(0, 2 * count, 2)]


def join_requests(
    fleet: Sequence[Machine], tokens: Sequence[Token], seal_to: SealTo
) -> list[bytes]:
    """Return the canonical bytes of one request for each machine, with the claims that an agent sends."""
    return _in_parallel(partial(_request, seal_to), list(zip(fleet, tokens, strict=True)))


def _machine(_: int) -> Machine:
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Machine(private, csr.public_bytes(Encoding.DER))


def _request(seal_to: SealTo, joins: tuple[Machine, Token]) -> bytes:
    machine, token = joins
    name = sha256(machine.csr)
    digits = name.hexdigest()
    claims = Claims(
        product_uuid=f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}",
        serial=digits[:10].upper(),
        macs=("02:" + ":".join(digits[at : at + 2] for at in range(0, 10, 2)),),
        hostname=f"node-{digits[:8]}.fleet.example",
    )
    unsealed = JoinRequest(
        version=1,
        kind="join",
        request_id=str(uuid7()),
        attestor="join-token",
        role="node",
        csr=b64(machine.csr),
        encryption_key_id=seal_to.kid,
        sealed=UNSEALED,
        state=None,
        reply_key=None,
    )
    evidence = encode(token.id, token.secret)
    return seal_evidence(
        unsealed, seal_to.public, evidence, claims, csr_sha256=name.digest()
    ).write()


def _in_parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        return pool.map(work, items, chunksize=_CHUNK)


def read_parts(file: Path) -> list[bytes]:
    """Return the length-prefixed parts of a file; what a killed run left half written is cut off."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return []
    parts: list[bytes] = []
    at = whole = 0
    while (start := at + 4) <= len(data):
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            break
        parts.append(data[start:at])
        whole = at if len(parts) % 2 == 0 else whole
    if whole < len(data):
        with file.open("r+b") as kept:
            kept.truncate(whole)
    return parts[: len(parts) // 2 * 2]
