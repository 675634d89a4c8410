"""Keys are replaced while machines join."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.crypto import DAY, NOW, TRUST_DOMAIN
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.belief import believe
from watchword.handlers.crypto.join_crypto import DEFAULT_GRACE
from watchword.handlers.crypto.keyfiles import create_keys, load_authority, load_worker_keys
from watchword.handlers.crypto.keyrotation import (
    OVERLAPS,
    KeyRow,
    WorkerKind,
    activate,
    prepare,
    retire,
    worker_rows,
)
from watchword.handlers.crypto.keysets import bootstrap_key_set, choose_encryption_key
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import ConfigRefused, Conflict, NotFound, SealBroken, SignatureBroken

KINDS: tuple[WorkerKind, ...] = ("signing", "decryption", "challenge")
BOUND: dict[str, Any] = {
    "attestor": "tpm",
    "attestor_version": "1",
    "role": "node",
    "csr_sha256": b"\x07" * 32,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    create_keys(made, TRUST_DOMAIN, NOW)
    # The one that `keys init` makes beside the first: here every kind begins with one key.
    (spare,) = (row.kid for row in rows(made, "challenge") if row.state == "prepared")
    retire(made, "challenge", spare, now=NOW)
    return made


def rows(folder: Path, kind: str) -> list[KeyRow]:
    return [row for row in worker_rows(folder) if row.kind == kind]


def states(folder: Path, kind: str) -> list[str]:
    return sorted(row.state for row in rows(folder, kind))


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rotated(folder: Path, kind: WorkerKind, *, days: float = 0) -> tuple[str, str]:
    prepare(folder, kind, now=NOW + days * DAY)
    return activate(folder, kind, now=NOW + days * DAY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_prepared_then_active_then_retired_then_gone(
    folder: Path, kind: WorkerKind
) -> None:
    """Each step is one that operators can see, and can stop at."""
    (first,) = rows(folder, kind)
    prepared = prepare(folder, kind, now=NOW)
    assert states(folder, kind) == ["active", "prepared"]

    assert activate(folder, kind, now=NOW + DAY) == (prepared, first.kid)
    assert states(folder, kind) == ["active", "retired"]
    (old,) = (row for row in rows(folder, kind) if row.kid == first.kid)
    assert old.needed_until is not None
    until = NOW + DAY + OVERLAPS[kind] + (DEFAULT_GRACE if kind == "decryption" else timedelta(0))
    assert old.needed_until == until

    retire(folder, kind, first.kid, now=until)
    assert states(folder, kind) == ["active"]
    assert load_worker_keys(folder).kids >= {prepared}
    assert not [path for path in folder.rglob("*") if first.kid in path.name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(lambda f, k: activate(f, k, now=NOW), "prepared", id="activated unprepared"),
        pytest.param(
            lambda f, k: retire(f, k, rows(f, k)[0].kid, now=NOW), "active", id="active retired"
        ),
        pytest.param(
            lambda f, k: retire(f, k, rows(f, k)[0].kid, now=NOW, is_compromised=True),
            "active",
            id="active retired, compromised",
        ),
        pytest.param(lambda f, k: retire(f, k, "nobody", now=NOW), "no ", id="unknown retired"),
    ],
)
def test_the_wrong_order_is_said_and_changes_nothing(
    folder: Path, kind: WorkerKind, wrong: Callable[[Path, WorkerKind], object], said: str
) -> None:
    """A half-done rotation is worse than none."""
    before = content(folder)

    with pytest.raises((Conflict, NotFound), match=said):
        wrong(folder, kind)

    assert content(folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_two_operators_do_not_prepare_two_keys(folder: Path, kind: WorkerKind) -> None:
    """The second one would activate what the first has told nobody of."""
    prepare(folder, kind, now=NOW)
    before = content(folder)

    with pytest.raises(Conflict, match="prepared already"):
        prepare(folder, kind, now=NOW)

    assert content(folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_needed_stays_unless_somebody_else_has_it(
    folder: Path, kind: WorkerKind
) -> None:
    """Requests and answers are on their way; only a thief is a reason to lose them."""
    _, old = rotated(folder, kind)

    with pytest.raises(Conflict, match="may be needed until"):
        retire(folder, kind, old, now=NOW + timedelta(minutes=1))
    assert states(folder, kind) == ["active", "retired"]

    retire(folder, kind, old, now=NOW + timedelta(minutes=1), is_compromised=True)
    assert states(folder, kind) == ["active"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prepared_key_that_cannot_be_used_is_not_activated(
    folder: Path, kind: WorkerKind
) -> None:
    """A worker that cannot load its keys judges nothing."""
    kid = prepare(folder, kind, now=NOW)
    (path,) = (path for path in folder.rglob("*") if kid in path.name)
    path.chmod(0o644)
    before = content(folder)

    with pytest.raises(ConfigRefused, match="chmod 600"):
        activate(folder, kind, now=NOW)
    assert content(folder) == before
    with pytest.raises(ConfigRefused, match="chmod 600"):
        load_worker_keys(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_that_is_cut_short_leaves_the_keys_as_they_were(
    folder: Path, kind: WorkerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is what counts, and it is replaced as a whole."""
    before = worker_rows(folder)

    def cut(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr("watchword.handlers.crypto.keymanifest.replace", cut)
    with pytest.raises(InterruptedError):
        prepare(folder, kind, now=NOW)

    assert worker_rows(folder) == before
    load_worker_keys(folder)


def test_agents_seal_to_a_decryption_key_once_it_is_active_and_workers_open_both(
    folder: Path,
) -> None:
    def opens(keys: WorkerKeys, kid: str, days: float) -> bool:
        crypto = keys.join_crypto(LocalSigner(load_authority(folder)))
        held = next(held for held in everything.decryption if held.kid == kid)
        sealed = hpke.seal(held.key.public, b"x", b"")
        try:
            return crypto.unseal(kid, sealed, b"", NOW + days * DAY) == b"x"
        except SealBroken:
            return False

    def chosen(keys: WorkerKeys, days: float) -> str:
        at = NOW + days * DAY
        return choose_encryption_key(bootstrap_key_set(keys.key_set(at), keys.pin), at).kid

    first = load_worker_keys(folder).decryption[0].kid
    second = prepare(folder, "decryption", now=NOW)
    everything = load_worker_keys(folder)
    assert chosen(everything, 0) == first
    assert opens(everything, second, 0), "another worker may have been told of it before"

    activate(folder, "decryption", now=NOW + DAY)
    assert chosen(load_worker_keys(folder), 1) == second
    assert opens(load_worker_keys(folder), first, 2.9)
    assert not opens(load_worker_keys(folder), first, 3.1)


def test_every_worker_opens_the_states_that_any_other_seals(folder: Path) -> None:
    """Workers load a rotation one after another: old and new ones run side by side."""
    prepare(folder, "challenge", now=NOW)
    old = load_worker_keys(folder).states
    activate(folder, "challenge", now=NOW)
    new = load_worker_keys(folder).states

    for seals, opens in ((old, new), (new, old), (new, new)):
        state = seals.seal(b"x", **BOUND, expires_at=NOW + DAY, now=NOW)
        assert opens.open(state, **BOUND, now=NOW) == b"x"


def test_a_retired_challenge_key_opens_nothing_after_its_time(folder: Path) -> None:
    """Whoever finds it in an old backup could otherwise make states of any age."""
    keys = load_worker_keys(folder).states
    state = keys.seal(b"x", **BOUND, expires_at=NOW + DAY, now=NOW)
    rotated(folder, "challenge")
    after = load_worker_keys(folder).states
    almost = NOW + OVERLAPS["challenge"] - timedelta(seconds=1)
    assert after.open(state, **BOUND, now=almost) == b"x"

    with pytest.raises(SealBroken):
        after.open(state, **BOUND, now=NOW + OVERLAPS["challenge"])


def test_a_retired_signing_key_signs_nothing(folder: Path) -> None:
    """Its file may still be there; no worker loads it."""
    first = load_worker_keys(folder)
    new, old = rotated(folder, "signing")
    keys = load_worker_keys(folder)

    assert (keys.signing.kid, first.signing.kid) == (new, old)
    assert old not in keys.kids
    belief = believe(first.pin, keys.key_set(NOW), keys.trust_bundle(NOW))
    assert belief.key_set.signing.kid == new
    assert [key.kid for key in belief.key_set.retired] == [old]
    with pytest.raises(SignatureBroken):
        believe(first.pin, first.key_set(NOW), keys.trust_bundle(NOW), before=belief)


def test_the_version_that_agents_compare_grows_with_each_change_that_they_must_see(
    folder: Path,
) -> None:
    versions = [load_worker_keys(folder).version]
    for kind in ("signing", "decryption"):
        rotated(folder, kind)
        versions.append(load_worker_keys(folder).version)

    assert versions == sorted(set(versions))
