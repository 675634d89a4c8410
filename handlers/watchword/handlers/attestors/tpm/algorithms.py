"""The algorithms of a TPM that are worked with (TPM 2.0 Library, Part 2, 6.3 and 6.4), and no others.

SHA-1 is here for PCR banks alone: no name, signature or derivation is made with it.
"""

import hashlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm


class Alg(IntEnum):
    """TPM_ALG_ID."""

    RSA = 0x0001
    SHA1 = 0x0004
    AES = 0x0006
    SHA256 = 0x000B
    SHA384 = 0x000C
    SHA512 = 0x000D
    NULL = 0x0010
    RSASSA = 0x0014
    RSAES = 0x0015
    RSAPSS = 0x0016
    OAEP = 0x0017
    ECDSA = 0x0018
    ECDAA = 0x001A
    ECC = 0x0023
    CFB = 0x0043


HASHES: Mapping[int, HashAlgorithm] = {
    Alg.SHA256: SHA256(),
    Alg.SHA384: SHA384(),
    Alg.SHA512: SHA512(),
}
"""Hashes of names, signatures and derivations."""

BANKS: Mapping[int, str] = {
    Alg.SHA1: "sha1",
    Alg.SHA256: "sha256",
    Alg.SHA384: "sha384",
    Alg.SHA512: "sha512",
}
"""Banks of PCRs, by the names that `hashlib` and operators use."""

CURVES: Mapping[int, ec.EllipticCurve] = {0x0003: ec.SECP256R1(), 0x0004: ec.SECP384R1()}
"""TPM_ECC_CURVE. P-224, BN-256 and whatever comes are refused: no key of theirs is looked at."""

MAX_DIGEST_BYTES = 64


_HASHERS: Mapping[int, Callable[[bytes], Any]] = {
    bank: getattr(hashlib, name) for bank, name in BANKS.items()
}
_SIZES: Mapping[int, int] = {
    Alg.SHA1: 20,
    Alg.SHA256: 32,
    Alg.SHA384: 48,
    Alg.SHA512: 64,
}


def digest(algorithm: int, data: bytes) -> bytes:
    """Return the hash of a bank over these bytes; `KeyError` for an unknown one."""
    found: bytes = _HASHERS[algorithm](data).digest()
    return found


def digest_size(algorithm: int) -> int:
    """Return how many bytes a hash of a bank has; `KeyError` for an unknown one."""
    return _SIZES[algorithm]
