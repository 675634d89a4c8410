"""Reading a machine's CSR."""

import time
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import (
    SHA1,
    SHA224,
    SHA256,
    SHA384,
    SHA512,
    HashAlgorithm,
)
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import Digest, NodeKey, csr_of, rsa_key, rsa_spki, spki_of
from watchword.handlers.crypto import der
from watchword.handlers.crypto.csr import check_possession, load_csr
from watchword.handlers.errors import InvalidInput
from watchword.schemas.requests import MAX_CSR_BYTES

P256 = ec.generate_private_key(ec.SECP256R1())
GOOD = csr_of(P256)
_SHA256_WITH_ECDSA = bytes.fromhex("300a06082a8648ce3d040302")


def unsigned_csr(
    spki: bytes, *, version: bytes = b"\x02\x01\x00", attributes: bytes = b"\xa0\x00"
) -> bytes:
    """Return a CSR put together by hand, whose signature is nobody's."""
    info = der.tlv(der.SEQUENCE, version + b"\x30\x00" + spki + attributes)
    signature = der.tlv(der.BIT_STRING, b"\0" + bytes(64))
    return der.tlv(der.SEQUENCE, info + _SHA256_WITH_ECDSA + signature)


def refused(encoded: bytes) -> str:
    """Return why a CSR is refused, by shape, key or signature; fail if it is not."""
    with pytest.raises(InvalidInput) as caught:
        check_possession(load_csr(encoded))
    return caught.value.reason


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        pytest.param(P256, SHA256(), id="P-256 SHA-256"),
        pytest.param(P256, SHA512(), id="P-256 SHA-512"),
        pytest.param(ec.generate_private_key(ec.SECP384R1()), SHA384(), id="P-384 SHA-384"),
        pytest.param(Ed25519PrivateKey.generate(), None, id="Ed25519"),
        pytest.param(rsa_key(), SHA256(), id="RSA SHA-256"),
        pytest.param(rsa_key(), SHA384(), id="RSA SHA-384"),
        pytest.param(rsa_key(), SHA512(), id="RSA SHA-512"),
    ],
)
def test_a_csr_signed_by_its_own_good_key_is_taken(key: NodeKey, digest: Digest | None) -> None:
    csr = load_csr(csr_of(key, digest=digest))

    check_possession(csr)

    assert csr.spki_der == spki_of(key)
    assert csr.public_key == key.public_key()


@pytest.mark.parametrize("digest", [SHA256(), SHA384(), SHA512()], ids=lambda d: d.name)
def test_rsa_pss_with_a_salt_of_the_digests_size_is_taken(digest: SHA256 | SHA384 | SHA512) -> None:
    """What RFC 8446 and hardware keys use; the parameters are ours to know, not the CSR's."""
    encoded = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(
            rsa_key(),
            digest,
            rsa_padding=padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH),
        )
        .public_bytes(Encoding.DER)
    )

    check_possession(load_csr(encoded))


def test_every_truncation_is_malformed() -> None:
    """A parser that survives truncation has met the network before."""
    for length in range(len(GOOD)):
        assert refused(GOOD[:length]) == "csr-malformed"


def test_bytes_left_over_are_malformed() -> None:
    """The digest of a CSR is its identity; padding would make a second one."""
    assert refused(GOOD + b"\0") == "csr-malformed"


@given(st.integers(0, len(GOOD) * 8 - 1))
def test_no_bit_can_be_changed(bit: int) -> None:
    """The signature covers all that is not the signature, and the rest has one spelling."""
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8

    refused(bytes(changed))


@given(st.binary(max_size=2000))
def test_junk_is_refused_and_nothing_else_is_raised(junk: bytes) -> None:
    refused(junk)


def test_a_csr_without_the_attributes_field_is_malformed() -> None:
    """Charge points send such CSRs. RFC 2986 makes the field mandatory, and the module says what we do."""
    assert refused(unsigned_csr(spki_of(P256), attributes=b"")) == "csr-malformed"


def test_another_version_is_malformed() -> None:
    assert refused(unsigned_csr(spki_of(P256), version=b"\x02\x01\x01")) == "csr-malformed"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda: bytes(64 * 1024), "csr-malformed", id="64 KiB"),
        pytest.param(lambda: GOOD + bytes(MAX_CSR_BYTES), "csr-malformed", id="padded"),
        pytest.param(lambda: unsigned_csr(rsa_spki(16384)), "weak-key", id="RSA-16384"),
        pytest.param(
            lambda: unsigned_csr(rsa_spki(2048, (1 << 4095) + 1)), "weak-key", id="e of 4096 bits"
        ),
        pytest.param(
            lambda: csr_of(
                P256,
                names=x509.SubjectAlternativeName([x509.DNSName(f"n{n}") for n in range(500)]),
            ),
            "csr-malformed",
            id="500 names",
        ),
    ],
)
def test_what_costs_much_is_refused_cheaply(make: Callable[[], bytes], reason: str) -> None:
    """SPIRE 1.14.2 fixed keys made to burn the server's CPU. Here the signature is never looked at."""
    encoded = make()
    before = time.process_time()

    with pytest.raises(InvalidInput) as caught:
        load_csr(encoded)

    assert caught.value.reason == reason
    assert time.process_time() - before < 0.05


def test_an_extension_twice_is_malformed() -> None:
    """Two parsers pick two different ones."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = csr_of(key, names=x509.SubjectAlternativeName([x509.DNSName("a.example")]))
    start = encoded.index(bytes.fromhex("0603551d11")) - 2
    extension = encoded[start : start + 2 + encoded[start + 1]]
    request = der.tlv(der.SEQUENCE, extension + extension)
    attribute = bytes.fromhex("06092a864886f70d01090e") + der.tlv(0x31, request)
    attributes = der.tlv(0xA0, der.tlv(der.SEQUENCE, attribute))

    assert refused(unsigned_csr(spki_of(key), attributes=attributes)) == "csr-malformed"


def test_other_names_are_ignored() -> None:
    """A UPN in a CSR is no reason to refuse it, and none to copy it."""
    upn = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x01a")

    check_possession(load_csr(csr_of(P256, names=x509.SubjectAlternativeName([upn]))))


@pytest.mark.parametrize("digest", [SHA1(), SHA224()], ids=lambda d: d.name)  # noqa: S303 - it is refused
def test_weak_hashes_prove_no_possession(digest: HashAlgorithm) -> None:
    """Nobody needs them, and SHA-1 collisions can be bought."""
    good = load_csr(GOOD)
    oid = {"sha1": "300906072a8648ce3d0401", "sha224": "300a06082a8648ce3d040301"}[digest.name]
    signature = P256.sign(good.signed, ec.ECDSA(digest))
    encoded = der.tlv(
        der.SEQUENCE,
        good.signed + bytes.fromhex(oid) + der.tlv(der.BIT_STRING, b"\0" + signature),
    )

    assert refused(encoded) == "csr-signature"


def test_another_keys_signature_proves_nothing() -> None:
    """Whoever resends somebody's public key must not get a certificate for it."""
    good = load_csr(GOOD)
    signature = ec.generate_private_key(ec.SECP256R1()).sign(good.signed, ec.ECDSA(SHA256()))
    encoded = der.tlv(
        der.SEQUENCE, good.signed + good.algorithm + der.tlv(der.BIT_STRING, b"\0" + signature)
    )

    assert refused(encoded) == "csr-signature"


@pytest.mark.parametrize("key", [rsa_key(), Ed25519PrivateKey.generate()], ids=["RSA", "Ed25519"])
def test_an_algorithm_of_another_kind_of_key_is_refused(key: NodeKey) -> None:
    """The key decides how its signature is checked; the CSR must agree."""
    assert refused(unsigned_csr(spki_of(key))) == "csr-signature"


def test_a_signature_that_is_no_whole_number_of_bytes_is_malformed() -> None:
    """Its unused bits would be free to change."""
    good = load_csr(GOOD)
    encoded = der.tlv(
        der.SEQUENCE,
        good.signed + good.algorithm + der.tlv(der.BIT_STRING, b"\x01" + good.signature + b"\0"),
    )

    assert refused(encoded) == "csr-malformed"
