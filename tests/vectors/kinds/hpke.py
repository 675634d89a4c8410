"""HPKE (RFC 9180): base mode in our suite opens, and no other mode or suite does.

The RFC's messages have associated data, and ours have none: a message of theirs is opened by the key schedule that
their context comes to, and then closed again without it for our own key.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.vectors.judging import Entry, Result, accepts, refuses, same
from watchword.handlers.crypto.hpke import DecryptionKey

_OURS = (0, 1, 1)
"""Base mode, HKDF-SHA256, AES-128-GCM."""


def vectors(entries: Sequence[Entry]) -> Iterator[Result]:
    """Open each with our key holder."""
    for entry in entries:
        for number, one in enumerate(json.loads(entry.data())):
            case = f"{number}: mode {one['mode']}, aead {one['aead_id']}"
            if (one["mode"], one["kdf_id"], one["aead_id"]) == _OURS:
                yield from _ours(entry, one, case)
            else:
                yield refuses(entry, _opener(one), _message(one), case=case)


def _ours(entry: Entry, one: Mapping[str, Any], case: str) -> Iterator[Result]:
    cipher, nonce = AESGCM(bytes.fromhex(one["key"])), bytes.fromhex(one["base_nonce"])
    first = one["encryptions"][0]
    plain, aad = bytes.fromhex(first["pt"]), bytes.fromhex(first["aad"])
    same(cipher.encrypt(nonce, plain, aad).hex(), first["ct"])
    sealed = bytes.fromhex(one["enc"]) + cipher.encrypt(nonce, plain, b"")

    def take(data: bytes) -> None:
        same(_opener(one)(data), plain)

    yield accepts(entry, take, sealed, case=case)
    yield refuses(entry, _opener(one), _message(one), case=f"{case}, with associated data")


def _opener(one: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an attempt
    key, info = DecryptionKey(bytes.fromhex(one["skRm"])), bytes.fromhex(one["info"])
    return lambda data: key.open(data, info)


def _message(one: Mapping[str, Any]) -> bytes:
    found = one.get("encryptions") or [{"ct": "00" * 48}]
    return bytes.fromhex(one["enc"]) + bytes.fromhex(found[0]["ct"])
