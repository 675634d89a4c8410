"""Makes a credential that only one TPM can read, and only while it holds one certain key.

TPM2_MakeCredential without a TPM (TPM 2.0 Library, Part 1, 24; Part 3, 12.6). The seed goes to the endorsement
key; from it come a key that encrypts the secret and a key that binds it to the attestation key's name.
"""

import hmac
import secrets
from dataclasses import dataclass

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from watchword.handlers.attestors.tpm.algorithms import (
    BANKS,
    HASHES,
    MAX_DIGEST_BYTES,
    digest,
    digest_size,
)
from watchword.handlers.attestors.tpm.keys import UnfitKey
from watchword.handlers.attestors.tpm.reader import Malformed, Reader, sized
from watchword.handlers.attestors.tpm.structures import Public, PublicKey

SECRET_BYTES = 32
"""No longer than the digest of any accepted name, as the TPM asks."""
_LABEL = b"IDENTITY\0"
_MAX_ID_OBJECT_BYTES = 2 + MAX_DIGEST_BYTES + 2 + MAX_DIGEST_BYTES
_MAX_SECRET_BYTES = 512


@dataclass(frozen=True, slots=True)
class Credential:
    """A TPM2B_ID_OBJECT (Part 2, 12.4.3) and a TPM2B_ENCRYPTED_SECRET (11.4.3), as a TPM takes them."""

    id_object: bytes
    encrypted_secret: bytes


def make_credential(ek: Public, name: bytes, secret: bytes) -> Credential:
    """Return a credential that gives `secret` to the TPM of `ek` if it holds the object of this name.

    `ek` has passed `keys.check_ek`; `secret` is at most as long as a digest of its name's hash.
    """
    seed, encrypted = _share_seed(ek)
    return Credential(protect(ek, name, secret, seed), sized(encrypted))


def protect(ek: Public, name: bytes, secret: bytes, seed: bytes) -> bytes:
    """Return the TPM2B_ID_OBJECT over a seed (Part 1, 24.4 and 24.5).

    Raises:
        UnfitKey: the endorsement key has no symmetric algorithm.
    """
    if ek.symmetric is None:
        message = "no storage key"
        raise UnfitKey(message)
    key = kdfa(ek.name_hash, seed, b"STORAGE", name, ek.symmetric.key_bits)
    encryptor = Cipher(AES(key), CFB(bytes(16))).encryptor()
    encrypted = encryptor.update(sized(secret)) + encryptor.finalize()
    integrity = kdfa(ek.name_hash, seed, b"INTEGRITY", b"", 8 * digest_size(ek.name_hash))
    mac = hmac.digest(integrity, encrypted + name, BANKS[ek.name_hash])
    return sized(sized(mac) + encrypted)


def read_id_object(data: bytes) -> tuple[bytes, bytes]:
    """Return integrity and encrypted identity of a TPM2B_ID_OBJECT (Part 2, 12.4.2 and 12.4.3).

    Raises:
        Malformed: it is cut, or goes on too long.
    """
    reader = Reader(data)
    content = reader.sized(_MAX_ID_OBJECT_BYTES)
    reader.end()
    inner = Reader(content)
    integrity = inner.sized(MAX_DIGEST_BYTES)
    encrypted = content[2 + len(integrity) :]
    if not encrypted:
        message = "no encrypted identity"
        raise Malformed(message)
    return integrity, encrypted


def read_encrypted_secret(data: bytes) -> bytes:
    """Return what a TPM2B_ENCRYPTED_SECRET (Part 2, 11.4.3) holds.

    Raises:
        Malformed: it is cut, or goes on too long.
    """
    reader = Reader(data)
    found = reader.sized(_MAX_SECRET_BYTES)
    reader.end()
    return found


def kdfa(algorithm: int, key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """Return `bits` (a multiple of 8) by KDFa (Part 1, 11.4.10.2): SP 800-108 in counter mode over HMAC."""
    found = b""
    while len(found) * 8 < bits:
        counter = (len(found) // digest_size(algorithm) + 1).to_bytes(4, "big")
        text = counter + label + b"\0" + context + bits.to_bytes(4, "big")
        found += hmac.digest(key, text, BANKS[algorithm])
    return found[: bits // 8]


def kdfe(algorithm: int, z: bytes, party_u: bytes, party_v: bytes) -> bytes:
    """Return a seed as long as the digest by KDFe (Part 1, 11.4.10.3): SP 800-56A's, one round of it."""
    counter = (1).to_bytes(4, "big")
    return digest(algorithm, counter + z + _LABEL + party_u + party_v)


def _share_seed(ek: Public) -> tuple[bytes, bytes]:
    """Return a fresh seed and how the endorsement key's holder learns it (Part 1, B.10.4 and C.6.1)."""
    key: PublicKey = ek.key
    if isinstance(key, ec.EllipticCurvePublicKey):
        return _share_by_ecdh(key, ek.name_hash)
    seed = secrets.token_bytes(digest_size(ek.name_hash))
    name_hash = HASHES[ek.name_hash]
    oaep = padding.OAEP(padding.MGF1(name_hash), name_hash, _LABEL)
    return seed, key.encrypt(seed, oaep)


def _share_by_ecdh(key: ec.EllipticCurvePublicKey, name_hash: int) -> tuple[bytes, bytes]:
    size = (key.curve.key_size + 7) // 8
    ephemeral = ec.generate_private_key(key.curve)
    point = ephemeral.public_key().public_numbers()
    x, y = (number.to_bytes(size, "big") for number in (point.x, point.y))
    static = key.public_numbers().x.to_bytes(size, "big")
    seed = kdfe(name_hash, ephemeral.exchange(ec.ECDH(), key), x, static)
    return seed, sized(x) + sized(y)
