"""Keys as files."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.crypto import DAY, NOW, STATEMENT, TRUST_DOMAIN, order
from watchword.handlers.crypto import hpke, keydirectory, private_files
from watchword.handlers.crypto.keyfiles import create_keys, load_authority, load_worker_keys
from watchword.handlers.crypto.keysets import bootstrap_key_set, choose_encryption_key
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.errors import BadArgument, ConfigRefused, Conflict
from watchword.schemas.canonical import unb64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    create_keys(made, TRUST_DOMAIN, NOW)
    return made


def test_made_keys_work_together(folder: Path) -> None:
    """The whole way of a key: an agent starts from the pin and seals, a worker opens."""
    keys = load_worker_keys(folder)
    crypto = keys.join_crypto(LocalSigner(load_authority(folder)))

    published = choose_encryption_key(bootstrap_key_set(keys.key_set(NOW), keys.pin), NOW)

    sealed = hpke.seal(unb64(published.public), b"evidence", b"info")
    assert crypto.unseal(published.kid, sealed, b"info", NOW) == b"evidence"
    assert crypto.trust_domain == TRUST_DOMAIN
    assert keys.ca_certificates == load_authority(folder).chain


def test_making_keys_again_changes_nothing(folder: Path) -> None:
    """`watchword dev` does it at every start."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    keys = create_keys(folder, TRUST_DOMAIN, NOW + DAY)

    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert keys.pin == load_worker_keys(folder).pin


def test_keys_of_another_trust_domain_are_not_taken_over(folder: Path) -> None:
    with pytest.raises(Conflict):
        create_keys(folder, "other.example", NOW)


@pytest.mark.parametrize("trust_domain", ["", "Fleet.example", "a/b", "a b", "ä.example"])
def test_a_trust_domain_is_checked_before_anything_is_made(
    tmp_path: Path, trust_domain: str
) -> None:
    with pytest.raises(BadArgument):
        create_keys(tmp_path / "keys", trust_domain, NOW)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", range(6))
def test_an_attempt_that_was_cut_short_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """A power cut in the middle of `keys init` must not leave a directory that nobody can use."""
    real, files = private_files.write_new, 0

    def cut(path: Path, content: bytes, *, public: bool = False) -> bool:
        nonlocal files
        if files == stop:
            raise InterruptedError
        files += 1
        return real(path, content, public=public)

    monkeypatch.setattr(keydirectory, "write_new", cut)
    with pytest.raises(InterruptedError):
        create_keys(tmp_path, TRUST_DOMAIN, NOW)
    monkeypatch.undo()

    keys = create_keys(tmp_path, TRUST_DOMAIN, NOW)

    assert keys.trust_domain == load_authority(tmp_path).trust_domain == TRUST_DOMAIN


def test_private_files_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_keys(tmp_path / "keys", TRUST_DOMAIN, NOW)
    finally:
        os.umask(before)

    for path in (tmp_path / "keys").rglob("*"):
        public = path.name in {"keys.json", "ca.cert.pem"}
        wanted = 0o700 if path.is_dir() else 0o644 if public else 0o600
        assert path.stat().st_mode & 0o777 == wanted, path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_private_key_that_others_can_use_is_refused_and_says_so(folder: Path, mode: int) -> None:
    """A key that was readable once has to be taken for known."""
    files = [folder / "signing.key.pem", *folder.glob("*/*")]
    for path in files:
        path.chmod(mode)

    with pytest.raises(ConfigRefused, match="chmod 600") as caught:
        load_worker_keys(folder)

    assert len(caught.value.problems) == len(files), "all problems at once"
    (folder / "ca.key.pem").chmod(mode)
    with pytest.raises(ConfigRefused, match="chmod 600"):
        load_authority(folder)


def test_a_worker_needs_no_ca_key_and_the_signer_nothing_else(folder: Path, tmp_path: Path) -> None:
    """They are two users, and neither can read the other's keys."""
    alone = tmp_path / "signer"
    alone.mkdir()
    shutil.move(folder / "ca.key.pem", alone)
    shutil.copy(folder / "ca.cert.pem", alone)

    authority = load_authority(alone)

    assert authority.trust_domain == load_worker_keys(folder).trust_domain
    assert len(authority.issue([order(node_key_uri=STATEMENT)])) == 1


def _x25519() -> bytes:
    return X25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("signing.key.pem", None),
        ("signing.key.pem", b"junk"),
        ("signing.key.pem", _x25519()),
        ("signing.key.pem", b"a" * 100_000),
        ("ca.cert.pem", None),
        ("ca.cert.pem", b"junk"),
        ("decryption/*", None),
        ("decryption/*", b"junk"),
        ("challenge/*", None),
        ("challenge/*", b"00" * 31),
        ("challenge/*", b"zz" * 32),
        ("keys.json", None),
        ("keys.json", b"junk"),
        ("keys.json", b"{}"),
        ("keys.json", b"[" * 5000),
    ],
)
def test_what_is_missing_or_damaged_is_named_and_not_quoted(
    folder: Path, name: str, content: bytes | None
) -> None:
    """An operator must find the file; a log must not find the key."""
    path = next(folder.glob(name))
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)

    with pytest.raises(ConfigRefused, match=path.name) as caught:
        load_worker_keys(folder)

    assert content is None or content[:20].decode() not in str(caught.value)


@pytest.mark.parametrize("change", [{"more": 1}, {"version": 0}, {"decryption": []}])
def test_a_manifest_of_another_shape_is_refused(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "keys.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ConfigRefused):
        load_worker_keys(folder)


def test_a_ca_without_a_trust_domain_needs_to_be_told_one(folder: Path) -> None:
    assert load_authority(folder, trust_domain="other.example").trust_domain == "other.example"
