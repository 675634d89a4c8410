"""TPM2_MakeCredential: what others have made, byte for byte where their randomness is known, else by its form."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.vectors.judging import Entry, Mismatch, Result, accepts, not_run, same
from watchword.handlers.attestors.tpm.credential import (
    protect,
    read_encrypted_secret,
    read_id_object,
)
from watchword.handlers.attestors.tpm.reader import Reader
from watchword.handlers.attestors.tpm.structures import Public, read_public_2b

_TOOLS = bytes.fromhex("badcc0de00000001")
"""How a credential of tpm2-tools begins: its magic number, and version 1."""
NO_KEY = "whether it is the secret only the TPM can tell, whose private key is not recorded"


def credentials(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge the recordings of go-tpm and of Keylime."""
    for entry in entries:
        match entry.name:
            case "ek.pub":
                places = key_places(entry.data())
                yield accepts(entry, partial(_is_key, entry.folder / "ekpub.pem"), flips=places)
            case "ekpub.pem":
                yield accepts(entry, partial(_is_pem_of, entry.folder / "ek.pub"), flips=())
            case "ak.name":
                yield accepts(entry, _is_name, flips=(0, 1))
            case "mkcred.out":
                yield blob(entry)
            case name if name.endswith(".json"):
                yield _go_tpm(entry)
            case _:
                yield not_run(entry, NO_KEY)


def blob(entry: Entry) -> Result:
    """Return whether a credential of tpm2-tools has the form that ours have; inside it, only the TPM can tell."""

    def take(data: bytes) -> None:
        if not data.startswith(_TOOLS):
            raise Mismatch
        id_object, secret = split(data[len(_TOOLS) :])
        read_id_object(id_object)
        read_encrypted_secret(secret)

    size = int.from_bytes(entry.data()[8:10], "big")
    return accepts(entry, take, flips=(*range(11), 10 + size, 11 + size))


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return a TPM2B_ID_OBJECT and the TPM2B_ENCRYPTED_SECRET after it."""
    reader = Reader(data)
    found = reader.sized(len(data))
    return data[: 2 + len(found)], data[2 + len(found) :]


def key_places(area: bytes) -> list[int]:
    """Return places of a TPM2B_PUBLIC that its key depends on: the rest only its name can vouch for."""
    return list(range(len(area) - 40, len(area), 3))


def _is_name(data: bytes) -> None:
    """Take a name by SHA-256: of which object it is nobody has recorded."""
    same((data[:2], len(data)), (b"\x00\x0b", 34))


def _is_key(pem: Path, area: bytes) -> None:
    """Take a TPM2B_PUBLIC whose key is the one in this file."""
    same(read_public_2b(area).key, load_pem_public_key(pem.read_bytes()))


def _is_pem_of(area: Path, pem: bytes) -> None:
    same(read_public_2b(area.read_bytes()).key, load_pem_public_key(pem))


def _go_tpm(entry: Entry) -> Result:
    """Make the identity object anew, with the seed of zeros with which go-tpm has made it."""
    said = json.loads(entry.data())
    ek = _storage_key(entry)
    name, secret = bytes.fromhex(said["ak_name_hex"]), bytes.fromhex(said["credential_hex"])

    def take(data: bytes) -> None:
        same(protect(ek, name, secret, bytes(32)), data)

    return accepts(entry, take, bytes.fromhex(said["id_object_hex"]))


def _storage_key(entry: Entry) -> Public:
    """Return an endorsement key of the default template: of it, only the algorithms go into an identity object."""
    return read_public_2b((entry.root / "tpm-credential" / "keylime" / "ek.pub").read_bytes())
