"""Sealing requests and answers."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId
from pyhpke.kem_key import KEMKey

from watchword.handlers.crypto import hpke
from watchword.handlers.errors import SealBroken

KEY = hpke.generate()
ORACLE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
OTHER_PRIVATE = X25519PrivateKey.generate()
OTHER_PUBLIC = OTHER_PRIVATE.public_key().public_bytes_raw()


@given(st.binary(max_size=5000), st.binary(max_size=300))
def test_another_implementation_opens_what_we_seal(plaintext: bytes, info: bytes) -> None:
    """Agents in other languages have other libraries."""
    sealed = hpke.seal(OTHER_PUBLIC, plaintext, info)
    private = KEMKey.from_pyca_cryptography_key(OTHER_PRIVATE)

    opened = ORACLE.create_recipient_context(sealed[:32], private, info=info).open(sealed[32:])

    assert opened == plaintext
    assert len(sealed) == len(plaintext) + hpke.OVERHEAD_BYTES


@given(st.binary(max_size=5000), st.binary(max_size=300))
def test_we_open_what_another_implementation_seals(plaintext: bytes, info: bytes) -> None:
    public = KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(KEY.public))
    enc, context = ORACLE.create_sender_context(public, info=info)

    assert KEY.open(enc + context.seal(plaintext), info) == plaintext


@given(st.binary(max_size=100), st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_byte_breaks_the_seal(plaintext: bytes, place: int, flip: int) -> None:
    """A relay can alter nothing; the top bit of `enc` alone means nothing (RFC 7748, 5) and still counts."""
    sealed = bytearray(hpke.seal(KEY.public, plaintext, b"info"))
    sealed[place % len(sealed)] ^= flip

    with pytest.raises(SealBroken):
        KEY.open(bytes(sealed), b"info")


def test_another_info_breaks_the_seal() -> None:
    """Evidence cannot be moved to another CSR or envelope: both are in `info`."""
    sealed = hpke.seal(KEY.public, b"evidence", b"this request")

    with pytest.raises(SealBroken):
        KEY.open(sealed, b"that request")


def test_another_key_does_not_open() -> None:
    with pytest.raises(SealBroken):
        hpke.generate().open(hpke.seal(KEY.public, b"evidence", b""), b"")


@pytest.mark.parametrize("length", [0, 1, 31, 32, 47])
def test_too_short_is_broken_and_no_other_error(length: int) -> None:
    with pytest.raises(SealBroken):
        KEY.open(bytes(length), b"")


@pytest.mark.parametrize("low_order", sorted(hpke._LOW_ORDER), ids=lambda u: u.hex()[:8])
@pytest.mark.parametrize("top_bit", [0, 0x80])
def test_nothing_is_sealed_to_a_point_of_low_order(low_order: bytes, top_bit: int) -> None:
    """Everybody knows the shared secret. The list is held against the exchange itself."""
    public = low_order[:-1] + bytes((low_order[-1] | top_bit,))

    with pytest.raises(SealBroken):
        hpke.seal(public, b"answer", b"")
    with pytest.raises(ValueError, match="shared key"):
        OTHER_PRIVATE.exchange(X25519PublicKey.from_public_bytes(public))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_public_key_has_32_bytes(length: int) -> None:
    with pytest.raises(SealBroken):
        hpke.check_public(b"\x09" * length)


def test_a_key_survives_its_raw_bytes() -> None:
    assert hpke.DecryptionKey(KEY.private_bytes()).public == KEY.public


def test_a_private_key_is_not_in_its_repr() -> None:
    """Keys end up in logs by being printed."""
    assert KEY.private_bytes().hex() not in repr(KEY)
