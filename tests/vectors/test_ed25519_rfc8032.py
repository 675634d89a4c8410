"""Ed25519 as in RFC 8032: what signs our documents."""

import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.vectors import vector
from watchword.handlers.crypto.jws import JwsSigner, verify
from watchword.handlers.crypto.keypolicy import load_public_key

pytestmark = pytest.mark.vectors


def test_keys_and_signatures_are_the_rfcs() -> None:
    """The first three are section 7.1, TEST 1 to 3; the rest come from the authors' own list."""
    found = json.loads(vector("ed25519/rfc8032-and-sign-input-open.json").read_bytes())
    assert len(found) > 50
    for one in found:
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(one["seed"]))
        message, signature = bytes.fromhex(one["message"]), bytes.fromhex(one["signature"])
        jws = JwsSigner("s-1", key)
        assert jws.public.hex() == one["public"]
        assert key.sign(message) == signature
        assert verify(jws.sign(message, "t"), jws.public, typ="t", kid="s-1") == message

        spki = bytes.fromhex("302a300506032b6570032100") + jws.public
        public = load_public_key(spki)
        flipped = signature[:-1] + bytes((signature[-1] ^ 1,))
        with pytest.raises(InvalidSignature):
            public.verify(flipped, message)  # type: ignore[call-arg]
