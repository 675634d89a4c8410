"""Credentials, byte for byte against a recording, and read by a TPM's half that knows the private key."""

import json
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.support.tpm import recorded_area
from tests.support.vectors import vector
from watchword.handlers.attestors.tpm.credential import (
    protect,
    read_encrypted_secret,
    read_id_object,
)
from watchword.handlers.attestors.tpm.keys import UnfitKey, check_ak, check_ek, check_node_key
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b

pytestmark = pytest.mark.vectors


@pytest.fixture
def recorded() -> dict[str, Any]:
    """Give the credential that go-tpm made with randomness of zeros."""
    found: dict[str, Any] = json.loads(
        vector("tpm-credential/go-tpm-makecredential-rsa.json").read_text()
    )
    return found


def test_id_object_is_the_recorded_one(recorded: dict[str, Any]) -> None:
    """One wrong label or length in the derivations, and no TPM in the world opens it."""
    ek = read_public_2b(recorded_area("tpm-credential/keylime", "ek"))
    made = protect(
        ek,
        bytes.fromhex(recorded["ak_name_hex"]),
        bytes.fromhex(recorded["credential_hex"]),
        bytes(32),
    )
    assert made.hex() == recorded["id_object_hex"]


def test_seed_is_encrypted_as_the_recording_did(recorded: dict[str, Any]) -> None:
    """OAEP with the name's hash and the label with its NUL; by hand, since nobody lets the padding be chosen."""
    key = load_pem_public_key(recorded["ek_public_pem"].encode())
    assert isinstance(key, rsa.RSAPublicKey)
    numbers = key.public_numbers()
    encoded = _oaep_of_zeros(bytes(16), b"IDENTITY\0", 256)  # that maker's seeds are AES keys long
    encrypted = pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(256, "big")

    assert read_encrypted_secret(bytes.fromhex(recorded["encrypted_secret_hex"])) == encrypted


def test_recorded_credentials_are_read_to_the_end() -> None:
    """What tpm2-tools and tpm2-pytss wrote has the form that we write; every cut of it has not."""
    folder = vector("swtpm/pytss")
    id_object = (folder / "cred.idobject").read_bytes()
    secret = (folder / "cred.encsecret").read_bytes()
    assert len(read_id_object(id_object)[0]) == 32
    assert len(read_encrypted_secret(secret)) == 256
    for size in range(len(id_object)):
        with pytest.raises(Malformed):
            read_id_object(id_object[:size])


@pytest.mark.parametrize(
    ("folder", "key"),
    [
        ("swtpm/tpm-a", "ak"),
        ("swtpm/tpm-a", "akrsa"),
        ("swtpm/pytss", "ak"),
        ("tpm-quote/keylime-emulator", "ak"),
    ],
)
def test_recorded_attestation_keys_are_fit(folder: str, key: str) -> None:
    """Real attestation keys sign quotes, and can be no endorsement keys."""
    ak = read_public_2b(recorded_area(folder, key))
    check_ak(ak)
    with pytest.raises(UnfitKey):
        check_ek(ak)


def test_recorded_endorsement_and_node_keys_are_fit_for_their_parts_alone() -> None:
    """A node's key may sign anything, so a quote by it is worth nothing."""
    ek = read_public_2b(recorded_area("swtpm/tpm-a", "ek"))
    node = read_public_2b(recorded_area("swtpm/tpm-a", "devkey"))
    check_ek(ek)
    check_node_key(node)
    for check, key in ((check_ak, ek), (check_ak, node), (check_ek, node), (check_node_key, ek)):
        with pytest.raises(UnfitKey):
            check(key)


def test_attestation_key_that_signs_with_sha1_is_refused() -> None:
    """The key is restricted and its TPM's own; what it signs could be said of another message too."""
    with pytest.raises(UnfitKey):
        check_ak(read_public_2b(recorded_area("tpm-quote/goattest-ak-creation-ecc", "ak")))


def _oaep_of_zeros(message: bytes, label: bytes, size: int) -> bytes:
    """Return EM of RFC 8017, 7.1.1, with a seed of zeros and SHA-256."""
    block = sha256(label).digest() + bytes(size - len(message) - 66) + b"\x01" + message
    mask = _mgf1(bytes(32), len(block))
    masked = bytes(a ^ b for a, b in zip(block, mask, strict=True))
    return b"\0" + _mgf1(masked, 32) + masked


def _mgf1(seed: bytes, size: int) -> bytes:
    """Return the mask of RFC 8017, B.2.1."""
    blocks = (sha256(seed + n.to_bytes(4, "big")).digest() for n in range(size // 32 + 1))
    return b"".join(blocks)[:size]
