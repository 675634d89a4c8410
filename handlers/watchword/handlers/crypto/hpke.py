"""HPKE (RFC 9180), base mode, one message: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.

A sealed message is `enc` (32 bytes), then the ciphertext with its 16-byte tag. There is no
associated data: what must not be moved or changed goes into `info` (section 5.1).
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from watchword.handlers.errors import SealBroken

KEY_BYTES = 32
OVERHEAD_BYTES = 48
"""What a seal adds to the plaintext: `enc` and tag."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)

_LOW_ORDER = frozenset(
    bytes.fromhex(u)
    for u in (
        "00" * 32,
        "01" + "00" * 31,
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""The points with which every exchange gives zero (RFC 7748, 6.1), and their second spellings."""


class DecryptionKey:
    """A private X25519 key that opens what was sealed to its public half."""

    def __init__(self, private: bytes) -> None:
        """Take 32 raw bytes.

        Raises:
            ValueError: there are not 32 of them.
        """
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        """The public key, 32 raw bytes."""

    def private_bytes(self) -> bytes:
        """Return the 32 raw private bytes, to be stored by `keyfiles` or an agent, and nowhere else."""
        return self._private.private_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Return the plaintext of `sealed` (RFC 9180, 6.1, OpenBase).

        Raises:
            SealBroken: too short, sealed to another key or under another `info`, or altered.
        """
        try:
            return _SUITE.decrypt(sealed, self._private, info=info)
        except (InvalidTag, ValueError):
            raise SealBroken from None


def generate() -> DecryptionKey:
    """Return a fresh key."""
    return DecryptionKey(X25519PrivateKey.generate().private_bytes_raw())


def seal(public: bytes, plaintext: bytes, info: bytes) -> bytes:
    """Return `plaintext` sealed to 32 raw bytes of a public X25519 key (RFC 9180, 6.1, SealBase).

    Raises:
        SealBroken: nothing can be sealed to this key; see `check_public`.
    """
    check_public(public)
    try:
        return _SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(public), info=info)
    except ValueError:
        raise SealBroken from None


def check_public(public: bytes) -> None:
    """Return only if something can be sealed to this key, without any arithmetic.

    Raises:
        SealBroken: not 32 bytes, or a point of low order, for which the shared secret is zero.
    """
    if len(public) != KEY_BYTES or public[:-1] + bytes((public[-1] & 0x7F,)) in _LOW_ORDER:
        message = "not a public key that can be sealed to"
        raise SealBroken(message)
