"""The test vectors of RFC 9180, appendix A.1 (X25519, HKDF-SHA256, AES-128-GCM, base mode)."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.vectors import vector
from watchword.handlers.crypto.hpke import DecryptionKey
from watchword.handlers.errors import SealBroken

pytestmark = pytest.mark.vectors


def vectors() -> list[dict[str, Any]]:
    """Return the vectors of our suite."""
    found = json.loads(vector("hpke/rfc9180-x25519-sha256-base.json").read_bytes())
    return [one for one in found if (one["mode"], one["kdf_id"], one["aead_id"]) == (0, 1, 1)]


def test_the_key_schedule_is_the_rfcs() -> None:
    """The vectors have associated data, which our messages do not: seal with the RFC's own key."""
    assert vectors()
    for one in vectors():
        key = DecryptionKey(bytes.fromhex(one["skRm"]))
        enc, info = bytes.fromhex(one["enc"]), bytes.fromhex(one["info"])
        cipher = AESGCM(bytes.fromhex(one["key"]))
        nonce = bytes.fromhex(one["base_nonce"])
        first = one["encryptions"][0]
        plaintext, aad = bytes.fromhex(first["pt"]), bytes.fromhex(first["aad"])
        assert cipher.encrypt(nonce, plaintext, aad).hex() == first["ct"]

        assert key.public.hex() == one["pkRm"]
        assert key.open(enc + cipher.encrypt(nonce, plaintext, b""), info) == plaintext
        with pytest.raises(SealBroken):
            key.open(enc + bytes.fromhex(first["ct"]), info)
