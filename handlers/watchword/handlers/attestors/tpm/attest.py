"""What a TPM signs of itself (TPMS_ATTEST), the signatures (TPMT_SIGNATURE), and whether they hold."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.padding import AsymmetricPadding
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import HashAlgorithm

from watchword.handlers.attestors.tpm.algorithms import BANKS, HASHES, MAX_DIGEST_BYTES, Alg
from watchword.handlers.attestors.tpm.reader import Malformed, Reader
from watchword.handlers.attestors.tpm.structures import Public

GENERATED = 0xFF544347
"""TPM_GENERATED_VALUE (Part 2, 6.2): a restricted key signs nothing from outside that begins so."""
ATTEST_CERTIFY = 0x8017
ATTEST_QUOTE = 0x8018

MAX_ATTEST_BYTES = 1024
MAX_SIGNATURE_BYTES = 1024
_MAX_NAME_BYTES = 2 + MAX_DIGEST_BYTES
_MAX_SELECTIONS = 16
_MAX_SELECT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Clock:
    """TPMS_CLOCK_INFO (Part 2, 10.11.1). `milliseconds` the TPM was on; counts of resets and restarts."""

    milliseconds: int
    resets: int
    restarts: int
    safe: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """TPMS_PCR_SELECTION (Part 2, 10.6.2): a bank's TPM_ALG_ID, and its selected PCRs in order."""

    bank: int
    pcrs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quoted:
    """TPMS_QUOTE_INFO (Part 2, 10.12.4)."""

    selections: tuple[Selection, ...]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Certified:
    """TPMS_CERTIFY_INFO (Part 2, 10.12.3): an object's name, and its name within its hierarchy."""

    name: bytes
    qualified_name: bytes


@dataclass(frozen=True, slots=True)
class Attest:
    """TPMS_ATTEST (Part 2, 10.12.12) of a quote or a certification. `raw` is what was signed."""

    raw: bytes
    signer: bytes
    extra_data: bytes
    clock: Clock
    firmware: int
    attested: Quoted | Certified


@dataclass(frozen=True, slots=True)
class Signature:
    """TPMT_SIGNATURE (Part 2, 11.3.4); `value` is what `cryptography` verifies (RSA bytes, or DER of r and s)."""

    scheme: int
    hash: int
    value: bytes


def read_attest(raw: bytes) -> Attest:
    """Return a TPMS_ATTEST (Part 2, 10.12.12) that a TPM generated, of a quote or a certification.

    Raises:
        Malformed: it is cut, goes on too long, does not begin with TPM_GENERATED_VALUE, or attests
            something else.
    """
    if len(raw) > MAX_ATTEST_BYTES:
        message = "too large"
        raise Malformed(message)
    reader = Reader(raw)
    if reader.u32() != GENERATED:
        message = "no TPM generated this"
        raise Malformed(message)
    kind = reader.u16()
    signer = reader.sized(_MAX_NAME_BYTES)
    extra_data = reader.sized(_MAX_NAME_BYTES)
    clock = _clock(reader)
    firmware = reader.u64()
    if kind == ATTEST_QUOTE:
        attested: Quoted | Certified = Quoted(_selections(reader), reader.sized(MAX_DIGEST_BYTES))
    elif kind == ATTEST_CERTIFY:
        attested = Certified(reader.sized(_MAX_NAME_BYTES), reader.sized(_MAX_NAME_BYTES))
    else:
        message = "neither a quote nor a certification"
        raise Malformed(message)
    reader.end()
    return Attest(raw, signer, extra_data, clock, firmware, attested)


def read_signature(data: bytes) -> Signature:
    """Return a TPMT_SIGNATURE (Part 2, 11.3.4) by RSASSA, RSAPSS or ECDSA.

    Raises:
        Malformed: it is cut, goes on too long, or is of another scheme or hash.
    """
    reader = Reader(data)
    scheme = reader.u16()
    if scheme not in (Alg.RSASSA, Alg.RSAPSS, Alg.ECDSA):
        message = "a signature scheme that is not accepted"
        raise Malformed(message)
    digest = reader.u16()
    if digest not in HASHES:
        message = "a signature's hash that is not accepted"
        raise Malformed(message)
    if scheme == Alg.ECDSA:  # TPMS_SIGNATURE_ECC (11.3.2); leading zeros may be there or not
        r, s = (int.from_bytes(reader.sized(MAX_DIGEST_BYTES), "big") for _ in range(2))
        value = encode_dss_signature(r, s)
    else:  # TPMS_SIGNATURE_RSA (11.3.1)
        value = reader.sized(MAX_SIGNATURE_BYTES)
    reader.end()
    return Signature(scheme, digest, value)


def holds(signature: Signature, signed: bytes, by: Public) -> bool:
    """Tell whether the signature over these bytes is the key's, in the key's own scheme and hash.

    The salt of RSAPSS is as long as the digest in some chips and as long as fits in others (the
    specification left it open: Part 1, B.7); both are taken, and no other.
    """
    scheme = by.scheme
    if scheme is not None and (scheme.algorithm, scheme.hash) != (signature.scheme, signature.hash):
        return False
    digest = HASHES[signature.hash]
    if isinstance(by.key, ec.EllipticCurvePublicKey):
        return signature.scheme == Alg.ECDSA and _ecdsa(by.key, signature.value, signed, digest)
    if signature.scheme == Alg.RSASSA:
        return _rsa(by.key, signature.value, signed, padding.PKCS1v15(), digest)
    if signature.scheme != Alg.RSAPSS:
        return False
    # As numbers: for verifying, `padding.PSS.MAX_LENGTH` is taken for any length.
    mask, longest = padding.MGF1(digest), padding.calculate_max_pss_salt_length(by.key, digest)
    return any(
        _rsa(by.key, signature.value, signed, padding.PSS(mask, salt), digest)
        for salt in (digest.digest_size, longest)
    )


def _ecdsa(
    key: ec.EllipticCurvePublicKey, value: bytes, signed: bytes, digest: HashAlgorithm
) -> bool:
    try:
        key.verify(value, signed, ec.ECDSA(digest))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def _rsa(
    key: rsa.RSAPublicKey,
    value: bytes,
    signed: bytes,
    pad: AsymmetricPadding,
    digest: HashAlgorithm,
) -> bool:
    try:
        key.verify(value, signed, pad, digest)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def _clock(reader: Reader) -> Clock:
    """Read a TPMS_CLOCK_INFO (Part 2, 10.11.1); `safe` is a TPMI_YES_NO (9.2)."""
    milliseconds, resets, restarts, safe = reader.u64(), reader.u32(), reader.u32(), reader.u8()
    if safe > 1:
        message = "neither yes nor no"
        raise Malformed(message)
    return Clock(milliseconds, resets, restarts, safe == 1)


def _selections(reader: Reader) -> tuple[Selection, ...]:
    """Read a TPML_PCR_SELECTION (Part 2, 10.9.7): the PCRs are bits, the lowest of the first byte PCR 0."""
    count = reader.u32()
    if count > _MAX_SELECTIONS:
        message = "too many selections of PCRs"
        raise Malformed(message)
    found: list[Selection] = []
    for _ in range(count):
        bank = reader.u16()
        size = reader.u8()
        if bank not in BANKS or size > _MAX_SELECT_BYTES:
            message = "a bank or a selection that is not known"
            raise Malformed(message)
        bits = int.from_bytes(reader.take(size), "little")
        found.append(Selection(bank, tuple(n for n in range(8 * size) if bits >> n & 1)))
    return tuple(found)
