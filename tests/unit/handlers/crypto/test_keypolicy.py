"""Which keys a node may have."""

import time
from hashlib import sha1
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import rsa_key, rsa_spki, spki_of
from watchword.handlers.crypto import der, keypolicy
from watchword.handlers.crypto.keypolicy import load_public_key, public_key_bits
from watchword.handlers.errors import InvalidInput

P256 = spki_of(ec.generate_private_key(ec.SECP256R1()))
P384 = spki_of(ec.generate_private_key(ec.SECP384R1()))
ED25519 = spki_of(Ed25519PrivateKey.generate())
_P = 2**255 - 19


def spki(key: Any) -> bytes:  # noqa: ANN401 - any public key
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(P256, id="P-256"),
        pytest.param(P384, id="P-384"),
        pytest.param(ED25519, id="Ed25519"),
        pytest.param(spki_of(rsa_key()), id="RSA-2048"),
        pytest.param(rsa_spki(2049), id="RSA-2049"),
        pytest.param(rsa_spki(8192), id="RSA-8192"),
    ],
)
def test_good_keys_are_taken_and_have_one_spelling(encoded: bytes) -> None:
    """What is hashed for bans and for `key-in-use` must be what the library would write."""
    assert spki(load_public_key(encoded)) == encoded


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(spki(ec.generate_private_key(ec.SECP521R1()).public_key()), id="P-521"),
        pytest.param(spki(ec.generate_private_key(ec.SECP256K1()).public_key()), id="secp256k1"),
        pytest.param(spki(ed448.Ed448PrivateKey.generate().public_key()), id="Ed448"),
        pytest.param(spki(x25519.X25519PrivateKey.generate().public_key()), id="X25519"),
        pytest.param(spki(dsa.generate_private_key(2048).public_key()), id="DSA"),
        pytest.param(rsa_spki(1024), id="RSA-1024"),
        pytest.param(rsa_spki(2047), id="RSA-2047"),
        pytest.param(rsa_spki(8193), id="RSA-8193"),
        pytest.param(rsa_spki(16384), id="RSA-16384"),
        pytest.param(rsa_spki(2048, 3), id="e = 3"),
        pytest.param(rsa_spki(2048, 65539), id="e = 65539"),
        pytest.param(rsa_spki(2048, (1 << 4095) + 1), id="e of 4096 bits"),
        pytest.param(rsa_spki(2048, low=0x10000), id="an even modulus"),
    ],
)
def test_weak_or_strange_keys_are_refused_before_openssl_sees_them(
    encoded: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of a verification grows with the cube of the size, and the attacker chooses it."""
    monkeypatch.setattr(
        keypolicy, "load_der_public_key", lambda _: pytest.fail("OpenSSL was asked")
    )
    before = time.process_time()

    with pytest.raises(InvalidInput, match="weak-key"):
        load_public_key(encoded)

    assert time.process_time() - before < 0.05


def _negative_modulus() -> bytes:
    """Return an RSA key whose modulus lacks the zero that makes it positive; lengths fit."""
    modulus = der.tlv(der.INTEGER, b"\x80" + bytes(253) + b"\x01\x01")
    key = der.tlv(der.SEQUENCE, modulus + der.unsigned(65537))
    algorithm = bytes.fromhex("300d06092a864886f70d0101010500")
    return der.tlv(der.SEQUENCE, algorithm + der.tlv(der.BIT_STRING, b"\0" + key))


def _compressed() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    point = key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    algorithm = P256[2:23]
    return der.tlv(der.SEQUENCE, algorithm + der.tlv(der.BIT_STRING, b"\0" + point))


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(_compressed(), id="a compressed point"),
        pytest.param(P256[:-1] + bytes((P256[-1] ^ 1,)), id="a point beside the curve"),
        pytest.param(P256 + b"\0", id="a byte left over"),
        pytest.param(b"", id="nothing"),
        pytest.param(rsa_spki(2048)[:-3] + b"\x01\x00", id="RSA cut short"),
        pytest.param(_negative_modulus(), id="a negative modulus"),
    ],
)
def test_another_spelling_of_a_good_key_is_malformed(encoded: bytes) -> None:
    """Otherwise a banned key comes back in another encoding, with another digest."""
    with pytest.raises(InvalidInput):
        load_public_key(encoded)


@given(st.sampled_from([P256, ED25519, spki_of(rsa_key())]), st.data())
def test_no_changed_byte_makes_a_second_spelling(encoded: bytes, data: st.DataObject) -> None:
    """Whatever is accepted is exactly what its key would be written as."""
    at = data.draw(st.integers(0, len(encoded) - 1))
    changed = (
        encoded[:at] + bytes((encoded[at] ^ data.draw(st.integers(1, 255)),)) + encoded[at + 1 :]
    )

    try:
        key = load_public_key(changed)
    except InvalidInput:
        return

    assert spki(key) == changed


@pytest.mark.parametrize(
    "encoded", [P256, P384, ED25519, rsa_spki(2048)], ids=["P-256", "P-384", "Ed25519", "RSA"]
)
def test_every_truncation_is_refused(encoded: bytes) -> None:
    for length in range(len(encoded)):
        with pytest.raises(InvalidInput):
            load_public_key(encoded[:length])


def test_points_of_small_order_are_refused_and_all_of_them_are_listed() -> None:
    """A signature that anyone can make holds for such a key, so it proves nobody's possession."""
    listed = {int.from_bytes(y, "little") for y in keypolicy._SMALL_ORDER}
    # The y of points with 8P = identity: 0, 1, -1 and the two of order 8, where
    # y^2 is a root of d*z^2 + 2*z - 1 (from doubling to y = 0), d of RFC 8032, 5.1.
    d = -121665 * pow(121666, -1, _P) % _P
    of_order_8 = {y for y in listed if (d * pow(y, 4, _P) + 2 * y * y - 1) % _P == 0}

    assert len({y % _P for y in of_order_8}) == 2
    # 2**255 - 19 and the number after it are 0 and 1 in another spelling; no other y below
    # 2**255 has two spellings and a small order.
    assert listed == {0, 1, _P - 1, _P, _P + 1} | of_order_8
    for y in keypolicy._SMALL_ORDER:
        for sign in (0, 0x80):
            point = y[:-1] + bytes((y[-1] | sign,))
            with pytest.raises(InvalidInput, match="weak-key"):
                load_public_key(ED25519[:12] + point)


@pytest.mark.parametrize(
    "encoded", [P256, P384, ED25519, rsa_spki(2048)], ids=["P-256", "P-384", "Ed25519", "RSA"]
)
def test_key_identifiers_are_made_of_the_key_alone(encoded: bytes) -> None:
    """The content of the BIT STRING, as RFC 5280, 4.2.1.2 asks."""
    identifier = x509.SubjectKeyIdentifier.from_public_key(load_public_key(encoded))

    assert sha1(public_key_bits(encoded), usedforsecurity=False).digest() == identifier.digest
