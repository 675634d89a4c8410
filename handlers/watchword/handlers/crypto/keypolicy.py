"""Which keys a node may have, decided on bytes before OpenSSL sees them.

| key | SubjectPublicKeyInfo | why this bound |
|---|---|---|
| P-256, P-384 | RFC 5480, named curve, uncompressed point | what TPMs and TLS 1.3 have in common |
| Ed25519 | RFC 8410 | small-order points (anyone's signature holds for them) are refused |
| RSA 2048 to 8192 bits, e = 65537 | RFC 3279, parameters NULL | NIST SP 800-131A below, cost of a verification above |

One key has one spelling: a ban or a "key in use" goes by the SHA-256 of the SPKI, and a second
spelling (a compressed point, a padded integer) would walk around it.
"""

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from watchword.handlers.crypto import der
from watchword.handlers.errors import InvalidInput

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey

MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
RSA_EXPONENT = 65537

_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
_P384 = bytes.fromhex("3076301006072a8648ce3d020106052b8104002203620004")
_ED25519 = bytes.fromhex("302a300506032b6570032100")
_FIXED = ((_P256, 64), (_P384, 96), (_ED25519, 32))

_EC_CURVES = frozenset((_P256[2:23], _P384[2:20]))
_ED25519_ALGORITHM = _ED25519[2:9]
_RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")

_SMALL_ORDER = frozenset(
    bytes.fromhex(y)
    for y in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""The y of every point whose order divides 8, and the two that have a second spelling."""


def load_public_key(spki_der: bytes) -> PublicKey:
    """Return the key of a DER SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), if it is good enough.

    Raises:
        InvalidInput: `weak-key` for another algorithm, curve, size or exponent; `csr-malformed`
            for bytes that are not the one DER form of an accepted key.
    """
    # 1. The bytes are the one spelling of an accepted kind of key, within its bounds.
    # 2. The key itself holds: OpenSSL checks that a point is on its curve.

    # Step 1
    for prefix, size in _FIXED:
        if len(spki_der) == len(prefix) + size and spki_der.startswith(prefix):
            break
    else:
        _check_other(spki_der)
    if spki_der.startswith(_ED25519) and _without_sign(spki_der[len(_ED25519) :]) in _SMALL_ORDER:
        raise InvalidInput(_WEAK)

    # Step 2
    try:
        key = load_der_public_key(spki_der)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput(_MALFORMED) from None
    if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey):
        raise InvalidInput(_WEAK)
    return key


def public_key_bits(spki_der: bytes) -> bytes:
    """Return the content of the BIT STRING of an accepted SPKI: what key identifiers are made of."""
    for prefix in (_P256, _P384):
        if spki_der.startswith(prefix):
            return spki_der[len(prefix) - 1 :]  # the point, whose first byte the prefix ends with
    start, _ = der.read(spki_der, 0, der.SEQUENCE)
    _, after_algorithm = der.read(spki_der, start, der.SEQUENCE)
    start, end = der.read(spki_der, after_algorithm, der.BIT_STRING)
    return spki_der[start + 1 : end]


def _check_other(spki_der: bytes) -> None:
    """Return for an RSA key within the bounds; say what is wrong with everything else."""
    start, end = der.read(spki_der, 0, der.SEQUENCE)
    _, after_algorithm = der.read(spki_der, start, der.SEQUENCE)
    algorithm = spki_der[start:after_algorithm]
    if algorithm in _EC_CURVES or algorithm == _ED25519_ALGORITHM or end != len(spki_der):
        # A right algorithm with a compressed, missing or overlong point, or bytes left over.
        raise InvalidInput(_MALFORMED)
    if algorithm != _RSA_ALGORITHM:
        raise InvalidInput(_WEAK)
    start, _ = der.read(spki_der, after_algorithm, der.BIT_STRING)
    start, _ = der.read(spki_der, start + 1, der.SEQUENCE)
    start, after_modulus = der.read(spki_der, start, der.INTEGER)
    # Bounded before it becomes a number: one byte more for the sign.
    if after_modulus - start > MAX_RSA_BITS // 8 + 1:
        raise InvalidInput(_WEAK)
    modulus = int.from_bytes(spki_der[start:after_modulus], "big")
    if not MIN_RSA_BITS <= modulus.bit_length() <= MAX_RSA_BITS or modulus % 2 == 0:
        raise InvalidInput(_WEAK)
    # What remains can only be e = 65537; the comparison also finds every second spelling.
    if spki_der != _rsa_spki(modulus):
        start, end = der.read(spki_der, after_modulus, der.INTEGER)
        exponent = spki_der[start:end]
        raise InvalidInput(_MALFORMED if exponent == _EXPONENT_BYTES else _WEAK)


def _rsa_spki(modulus: int) -> bytes:
    key = der.tlv(der.SEQUENCE, der.unsigned(modulus) + der.unsigned(RSA_EXPONENT))
    return der.tlv(der.SEQUENCE, _RSA_ALGORITHM + der.tlv(der.BIT_STRING, b"\0" + key))


def _without_sign(point: bytes) -> bytes:
    """Return the y of an encoded point: the top bit says which x belongs to it (RFC 8032, 5.1.2)."""
    return point[:-1] + bytes((point[-1] & 0x7F,))


_EXPONENT_BYTES = RSA_EXPONENT.to_bytes(3, "big")
_WEAK = "weak-key"
_MALFORMED = "csr-malformed"
