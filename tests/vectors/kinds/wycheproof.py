"""Project Wycheproof: the algorithms that something of ours uses, by the code of ours that uses them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.vectors.judging import Entry, Mismatch, Result, accepts, aside, either, refuses, same
from watchword.handlers.attestors.tpm.algorithms import Alg
from watchword.handlers.attestors.tpm.attest import holds, read_signature
from watchword.handlers.attestors.tpm.structures import Attributes, Public, Scheme
from watchword.handlers.crypto.csr import Csr, check_possession
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.errors import InvalidInput

_Group = Mapping[str, Any]
_Test = Mapping[str, Any]
_Attempt = Callable[[bytes], object]


def _pss(hash_oid: str, salt: int) -> str:
    inner = f"300d06096086480165030402{hash_oid}0500"
    body = f"a00f{inner}a11c301a06092a864886f70d010108{inner}a2030201{salt:02x}"
    return f"304106092a864886f70d01010a3034{body}"


_SIGNATURES = {
    "ecdsa_secp256r1_sha256_test": "300a06082a8648ce3d040302",
    "ecdsa_secp384r1_sha384_test": "300a06082a8648ce3d040303",
    "ed25519_test": "300506032b6570",
    "rsa_signature_2048_sha256_test": "300d06092a864886f70d01010b0500",
    "rsa_signature_3072_sha256_test": "300d06092a864886f70d01010b0500",
    "rsa_signature_4096_sha512_test": "300d06092a864886f70d01010d0500",
    "rsa_pss_2048_sha256_mgf1_32_test": _pss("01", 32),
    "rsa_pss_4096_sha512_mgf1_64_test": _pss("03", 64),
}
"""AlgorithmIdentifiers, by the name of a file."""

_NOT_IN_USE = {
    "chacha20_poly1305_test": "nothing of ours is encrypted with ChaCha20",
    "ecdsa_secp521r1_sha512_test": "no key of ours signs on P-521",
    "rsa_pss_misc_params_test": "PSS is taken with the digest's own hash and length alone",
}


def groups(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge each test of a file by its field `result`."""
    for entry in entries:
        name = entry.name.removesuffix(".json")
        if name in _NOT_IN_USE:
            yield aside(entry, _NOT_IN_USE[name])
            continue
        for group in json.loads(entry.data())["testGroups"]:
            for test in group["tests"]:
                made = _made(name, group, test)
                if made is not None:
                    yield _judged(entry, test, *made)


def _judged(entry: Entry, test: _Test, attempt: _Attempt, data: bytes) -> Result:
    case = str(test["tcId"])
    if test["result"] == "acceptable":
        return either(entry, attempt, data)
    if test["result"] == "valid":
        flips = [0, len(data) // 2, len(data) - 1] if data else []
        return accepts(entry, attempt, data, flips=flips, case=case)
    return refuses(entry, attempt, data, case=case)


def _made(name: str, group: _Group, test: _Test) -> tuple[_Attempt, bytes] | None:
    """Return what judges a test, and what it judges; None for sizes that are not in use."""
    match name:
        case "aes_gcm_test":
            in_use = group["keySize"] in (128, 256) and group["ivSize"] == 96
            return _aes_gcm(test) if in_use and group["tagSize"] == 128 else None
        case "x25519_test":
            return _x25519(test)
        case "hkdf_sha256_test":
            return _hkdf(test)
        case "ecdsa_secp256r1_sha256_p1363_test":
            return _of_a_tpm(group, test)
        case _:
            return _possession(name, group, test)


def _possession(name: str, group: _Group, test: _Test) -> tuple[_Attempt, bytes] | None:
    spki = bytes.fromhex(group.get("publicKeyDer") or group["publicKeyAsn"])
    try:
        key = load_public_key(spki)
    except InvalidInput:
        return None  # some groups have e = 3, which no key of ours has
    message, algorithm = bytes.fromhex(test["msg"]), bytes.fromhex(_SIGNATURES[name])

    def take(signature: bytes) -> None:
        check_possession(Csr(b"", b"", spki, b"", key, message, algorithm, signature))

    return take, bytes.fromhex(test["sig"])


def _of_a_tpm(group: _Group, test: _Test) -> tuple[_Attempt, bytes]:
    """Show r and s as a TPM does (TPMS_SIGNATURE_ECC); the format of the file has no other form of them."""
    key = load_public_key(bytes.fromhex(group.get("publicKeyDer") or group["publicKeyAsn"]))
    message = bytes.fromhex(test["msg"])

    def take(signature: bytes) -> None:
        same(len(signature), 64)
        r, s = (len(half).to_bytes(2, "big") + half for half in (signature[:32], signature[32:]))
        said = read_signature(b"\x00\x18\x00\x0b" + r + s)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise Mismatch
        scheme = Scheme(Alg.ECDSA, Alg.SHA256)
        by = Public(b"", Alg.ECC, Alg.SHA256, Attributes(0), b"", None, scheme, key)
        if not holds(said, message, by):
            raise Mismatch

    return take, bytes.fromhex(test["sig"])


def _aes_gcm(test: _Test) -> tuple[_Attempt, bytes]:
    cipher, nonce = AESGCM(bytes.fromhex(test["key"])), bytes.fromhex(test["iv"])

    def take(sealed: bytes) -> None:
        try:
            plain = cipher.decrypt(nonce, sealed, bytes.fromhex(test["aad"]))
        except InvalidTag:
            raise Mismatch from None
        same(plain.hex(), test["msg"])

    return take, bytes.fromhex(test["ct"] + test["tag"])


def _x25519(test: _Test) -> tuple[_Attempt, bytes]:
    def take(shared: bytes) -> None:
        private = X25519PrivateKey.from_private_bytes(bytes.fromhex(test["private"]))
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(test["public"]))
        try:
            found = private.exchange(public)
        except ValueError:  # all zeros
            raise Mismatch from None
        same(found, shared)

    return take, bytes.fromhex(test["shared"])


def _hkdf(test: _Test) -> tuple[_Attempt, bytes]:
    def take(derived: bytes) -> None:
        salt, info = bytes.fromhex(test["salt"]), bytes.fromhex(test["info"])
        try:
            made = HKDF(SHA256(), test["size"], salt, info).derive(bytes.fromhex(test["ikm"]))
        except ValueError:  # longer than it gives
            raise Mismatch from None
        same(made, derived)

    return take, bytes.fromhex(test["okm"])
