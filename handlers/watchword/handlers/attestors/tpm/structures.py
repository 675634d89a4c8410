"""Public areas of a TPM's keys: parsed whole or not at all, and turned into keys and names."""

from dataclasses import dataclass
from enum import IntFlag

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from watchword.handlers.attestors.tpm.algorithms import (
    CURVES,
    HASHES,
    MAX_DIGEST_BYTES,
    Alg,
    digest,
)
from watchword.handlers.attestors.tpm.reader import Malformed, Reader

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

MAX_PUBLIC_BYTES = 1024
"""A public area with RSA-4096 has 586 bytes."""
RSA_BITS = (2048, 3072, 4096)
_DEFAULT_EXPONENT = 65537


class Attributes(IntFlag):
    """TPMA_OBJECT (Part 2, 8.3.2), those that say what a key may do and where it came from."""

    FIXED_TPM = 1 << 1
    FIXED_PARENT = 1 << 4
    SENSITIVE_DATA_ORIGIN = 1 << 5
    ADMIN_WITH_POLICY = 1 << 7
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN = 1 << 18


@dataclass(frozen=True, slots=True)
class Symmetric:
    """TPMT_SYM_DEF_OBJECT (Part 2, 11.1.7): how a parent protects what belongs to it."""

    algorithm: int
    key_bits: int
    mode: int


@dataclass(frozen=True, slots=True)
class Scheme:
    """A signing or encryption scheme; `hash` is None where the scheme has none."""

    algorithm: int
    hash: int | None


@dataclass(frozen=True, slots=True)
class Public:
    """TPMT_PUBLIC (Part 2, 12.2.4). `raw` is the bytes that were read, of which name and hash are made."""

    raw: bytes
    kind: int
    name_hash: int
    attributes: Attributes
    policy: bytes
    symmetric: Symmetric | None
    scheme: Scheme | None
    key: PublicKey

    @property
    def name(self) -> bytes:
        """The object's name (Part 1, 16): the hash's id and the hash over the public area."""
        return self.name_hash.to_bytes(2, "big") + digest(self.name_hash, self.raw)

    def has(self, attributes: Attributes) -> bool:
        """Tell whether all of these are set."""
        return (
            int.__and__(self.attributes, attributes) == attributes
        )  # no flag has to be made of it

    def has_any(self, attributes: Attributes) -> bool:
        """Tell whether one of these is set."""
        return int.__and__(self.attributes, attributes) != 0


def read_public_2b(data: bytes) -> Public:
    """Return what a TPM2B_PUBLIC (Part 2, 12.2.5) holds.

    Raises:
        Malformed: see `read_public`; or its size is not that of the data.
    """
    reader = Reader(data)
    raw = reader.sized(MAX_PUBLIC_BYTES)
    reader.end()
    return read_public(raw)


def read_public(raw: bytes) -> Public:
    """Return a TPMT_PUBLIC (Part 2, 12.2.4) of an RSA or ECC key.

    Raises:
        Malformed: it is cut, goes on too long, names another kind of key, hash, scheme or curve, or its
            numbers are no key.
    """
    reader = Reader(raw)
    kind = reader.u16()
    name_hash = reader.u16()
    attributes = Attributes(reader.u32())
    policy = reader.sized(MAX_DIGEST_BYTES)
    if name_hash not in HASHES:
        message = "the name is made with a hash that is not accepted"
        raise Malformed(message)
    symmetric = _symmetric(reader)
    scheme = _scheme(reader)
    if kind == Alg.RSA:
        key: PublicKey = _rsa(reader)
    elif kind == Alg.ECC:
        key = _ecc(reader)
    else:
        message = "neither an RSA nor an ECC key"
        raise Malformed(message)
    reader.end()
    return Public(raw, kind, name_hash, attributes, policy, symmetric, scheme, key)


def _symmetric(reader: Reader) -> Symmetric | None:
    """Read a TPMT_SYM_DEF_OBJECT (Part 2, 11.1.7): nothing follows TPM_ALG_NULL."""
    algorithm = reader.u16()
    if algorithm == Alg.NULL:
        return None
    return Symmetric(algorithm, reader.u16(), reader.u16())


def _scheme(reader: Reader) -> Scheme | None:
    """Read a TPMT_RSA_SCHEME or TPMT_ECC_SCHEME (Part 2, 11.2.4.2 and 11.2.5.6)."""
    algorithm = reader.u16()
    if algorithm == Alg.NULL:
        return None
    if algorithm == Alg.RSAES:
        return Scheme(algorithm, None)
    found = Scheme(algorithm, reader.u16())
    if algorithm == Alg.ECDAA:
        reader.u16()  # the count of TPMS_SCHEME_ECDAA (11.2.1.4)
    return found


def _rsa(reader: Reader) -> rsa.RSAPublicKey:
    """Read the rest of TPMS_RSA_PARMS (Part 2, 12.2.3.5) and TPM2B_PUBLIC_KEY_RSA (11.2.4.5)."""
    bits = reader.u16()
    exponent = reader.u32() or _DEFAULT_EXPONENT
    modulus = reader.sized(MAX_PUBLIC_BYTES)
    number = int.from_bytes(modulus, "big")
    if bits not in RSA_BITS or number.bit_length() != bits or len(modulus) * 8 != bits:
        message = "an RSA key of a size that is not accepted"
        raise Malformed(message)
    if exponent != _DEFAULT_EXPONENT:
        message = "an RSA exponent that is not accepted"
        raise Malformed(message)
    try:
        return rsa.RSAPublicNumbers(exponent, number).public_key()
    except (ValueError, UnsupportedAlgorithm):
        message = "no RSA key"
        raise Malformed(message) from None


def _ecc(reader: Reader) -> ec.EllipticCurvePublicKey:
    """Read the rest of TPMS_ECC_PARMS (Part 2, 12.2.3.6) and TPMS_ECC_POINT (11.2.5.2)."""
    curve = CURVES.get(reader.u16())
    if reader.u16() != Alg.NULL:  # TPMT_KDF_SCHEME (11.2.3.3)
        reader.u16()
    if curve is None:
        message = "a curve that is not accepted"
        raise Malformed(message)
    size = (curve.key_size + 7) // 8
    x, y = (int.from_bytes(reader.sized(size), "big") for _ in range(2))
    try:
        return ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
    except (ValueError, UnsupportedAlgorithm):
        message = "no point of its curve"
        raise Malformed(message) from None
