"""Project Wycheproof's signatures, through the check of possession."""

import json
from typing import Any

import pytest

from tests.support.vectors import vector
from watchword.handlers.crypto.csr import Csr, check_possession
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.errors import InvalidInput

pytestmark = pytest.mark.vectors

_PSS_SHA256 = (
    "304106092a864886f70d01010a3034a00f300d06096086480165030402010500"
    "a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120"
)
FILES = {
    "ecdsa_secp256r1_sha256_test": "300a06082a8648ce3d040302",
    "ecdsa_secp384r1_sha384_test": "300a06082a8648ce3d040303",
    "ed25519_test": "300506032b6570",
    "rsa_signature_2048_sha256_test": "300d06092a864886f70d01010b0500",
    "rsa_signature_3072_sha256_test": "300d06092a864886f70d01010b0500",
    "rsa_signature_4096_sha512_test": "300d06092a864886f70d01010d0500",
    "rsa_pss_2048_sha256_mgf1_32_test": _PSS_SHA256,
}


def spki_of(group: dict[str, Any]) -> bytes:
    """Return the group's key; the schemas name it differently."""
    return bytes.fromhex(group.get("publicKeyDer") or group["publicKeyAsn"])


@pytest.mark.parametrize(("name", "algorithm"), FILES.items())
def test_signatures_are_taken_and_refused_as_they_should_be(name: str, algorithm: str) -> None:
    """Malleable encodings, wrong paddings, edge cases of the arithmetic."""
    accepted = 0
    for group in json.loads(vector(f"wycheproof/{name}.json").read_bytes())["testGroups"]:
        spki = spki_of(group)
        try:
            key = load_public_key(spki)
        except InvalidInput as error:
            assert error.reason == "weak-key"  # noqa: PT017 - some groups have e = 3
            continue
        for one in group["tests"]:
            csr = Csr(
                b"",
                b"",
                spki,
                b"",
                key,
                bytes.fromhex(one["msg"]),
                bytes.fromhex(algorithm),
                bytes.fromhex(one["sig"]),
            )
            try:
                check_possession(csr)
            except InvalidInput:
                assert one["result"] != "valid", one
            else:
                assert one["result"] != "invalid", one
                accepted += 1
    assert accepted > 0
