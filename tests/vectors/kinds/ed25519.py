"""Ed25519 (RFC 8032): keys, signatures, and what is no signature of theirs."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.vectors.judging import Entry, Mismatch, Result, accepts, same
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keypolicy import load_public_key

_SPKI = bytes.fromhex("302a300506032b6570032100")


def signatures(entries: Sequence[Entry]) -> Iterator[Result]:
    """Sign with each seed, and verify what was signed by the key as a CSR would name it."""
    for entry in entries:
        for number, one in enumerate(json.loads(entry.data())):
            seed, message = bytes.fromhex(one["seed"]), bytes.fromhex(one["message"])
            public, signature = bytes.fromhex(one["public"]), bytes.fromhex(one["signature"])

            key = Ed25519PrivateKey.from_private_bytes(seed)
            yield accepts(entry, partial(_is_of, key), public, case=f"{number}, key")
            verify = partial(_verify, public, message=message)
            yield accepts(entry, verify, signature, case=f"{number}, signature")
            same(key.sign(message), signature)


def _is_of(key: Ed25519PrivateKey, public: bytes) -> None:
    same(JwsSigner("s-1", key).public, public)


def _verify(public: bytes, signature: bytes, message: bytes) -> None:
    key = load_public_key(_SPKI + public)
    if not isinstance(key, Ed25519PublicKey):
        raise Mismatch
    try:
        key.verify(signature, message)
    except InvalidSignature:
        raise Mismatch from None
