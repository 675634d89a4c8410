"""Replacing keys while they are in use: prepared, then active, then retired for as long as something needs them.

| kind | prepared | active | retired |
|---|---|---|---|
| signing | agents are told that it will follow; nothing is signed with it | signs | agents take its answers until its time |
| decryption | workers open with it; no agent is told | agents seal to it | workers open with it for as long as a request may wait |
| challenge | workers open with it | seals states | opens states until the last has expired |

Each change replaces `keys.json` as a whole, under a lock; a command that is refused has changed nothing. A
key file is there before a manifest names it, and goes after none does.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

from watchword.handlers.crypto.endorsements import endorse
from watchword.handlers.crypto.join_crypto import DEFAULT_GRACE
from watchword.handlers.crypto.keydirectory import KeyDirectory
from watchword.handlers.crypto.keyfiles import DECRYPTION_LIFETIME
from watchword.handlers.crypto.keymanifest import (
    MOST_HANDOVERS,
    MOST_KEYS,
    ChallengeEntry,
    DecryptionEntry,
    KeyManifest,
    SigningEntry,
    State,
    time_of,
)
from watchword.handlers.errors import ConfigRefused, Conflict, NotFound
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.times import rfc3339

Entry = TypeVar("Entry", SigningEntry, DecryptionEntry, ChallengeEntry)
WorkerKind = Literal["signing", "decryption", "challenge"]

OVERLAPS: dict[WorkerKind, timedelta] = {
    # As long as a gateway may keep an answer, and agents fetch keys every hour.
    "signing": timedelta(hours=2),
    # Until agents have fetched the new key set; requests may then wait for `DEFAULT_GRACE`.
    "decryption": timedelta(days=1),
    # The longest life of a state.
    "challenge": timedelta(hours=1),
}

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key as operators see it."""

    kind: str
    kid: str
    version: int
    """Of the manifest that says so."""
    state: State
    prepared_at: datetime | None = None
    activated_at: datetime | None = None
    ends_at: datetime | None = None
    """Of an active one: when it has to have a successor; None if it does not end by itself."""
    needed_until: datetime | None = None
    """Of a retired one: until when something may need it."""
    where: str = "file"


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Work in a folder of keys alone; whoever is there already is waited for.

    Raises:
        ConfigRefused: there is no such folder, or it is not ours.
    """
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigRefused([f"{directory}: {error.strerror or 'cannot be written'}"]) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def prepare(directory: Path, kind: WorkerKind, *, now: datetime) -> str:
    """Make the key that will follow the active one, and return its name.

    Raises:
        Conflict: one is prepared already, or too many that are retired are still there.
        ConfigRefused: the keys are not usable.
    """
    manifest, keys = KeyManifest.read(directory), KeyDirectory(directory)
    rows = [row for row in rows_of(manifest, keys) if row.kind == kind]
    if found := _names(rows, "prepared"):
        message = f"{kind} key {found[0]} is prepared already: activate or retire it first"
        raise Conflict(message)
    if len(rows) >= MOST_KEYS:
        message = f"there are {len(rows)} {kind} keys: retire those that nothing needs any more"
        raise Conflict(message)
    match kind:
        case "signing":
            signing = _with_first(manifest, keys)
            old = keys.signing(next(one.kid for one in signing if one.state == "active"))
            made = keys.make_next_signing(now)
            handover = endorse(
                old,
                kid=made.kid,
                public=unb64(made.public),
                issued_at=now,
                trust_domain=manifest.trust_domain,
            ).decode()
            said = made.model_copy(update={"handover": handover})
            _write(directory, manifest, signing=(said, *signing), tells_agents=True)
            return made.kid
        case "decryption":
            decryption = keys.make_next_decryption(now)
            _write(directory, manifest, decryption=(decryption, *manifest.decryption))
            return decryption.kid
        case "challenge":
            challenge = keys.make_challenge(now)
            _write(directory, manifest, challenge=_in_order(*manifest.challenge, challenge))
            return challenge.kid


def activate(
    directory: Path, kind: WorkerKind, *, now: datetime, overlap: timedelta | None = None
) -> tuple[str, str]:
    """Use the prepared key from now on; the active one is retired. Return the names of both.

    Raises:
        Conflict: none is prepared.
        ConfigRefused: the keys are not usable; the prepared one's file is read first.
    """
    manifest, keys = KeyManifest.read(directory), KeyDirectory(directory)
    rows = [row for row in rows_of(manifest, keys) if row.kind == kind]
    prepared = _names(rows, "prepared")
    if not prepared:
        message = f"no {kind} key is prepared: run `watchword keys prepare {kind}` first"
        raise Conflict(message)
    kid, (old,) = prepared[0], _names(rows, "active")
    at, until = rfc3339(now), rfc3339(now + (OVERLAPS[kind] if overlap is None else overlap))
    match kind:
        case "signing":
            keys.signing(kid)
            changes: dict[str, dict[str, object]] = {
                kid: {"state": "active", "activated_at": at, "handover": None},
                old: {"state": "retired", "retired_until": until},
            }
            handover = next(one.handover for one in manifest.signing if one.kid == kid)
            handovers = (*manifest.handovers, *([handover] if handover else []))
            _write(
                directory,
                manifest,
                signing=_changed(manifest.signing, changes),
                handovers=handovers[-MOST_HANDOVERS:],
                tells_agents=True,
            )
        case "decryption":
            keys.decryption(kid)
            was = next(one for one in manifest.decryption if one.kid == old)
            ends = min(was.not_after or until, until)  # RFC 3339 in one form sorts as text
            changes = {
                kid: {"not_before": at, "not_after": rfc3339(now + DECRYPTION_LIFETIME)},
                old: {"not_after": ends, "retired_at": at},
            }
            decryption = _changed(manifest.decryption, changes)
            _write(directory, manifest, decryption=decryption, tells_agents=True)
        case "challenge":
            keys.challenge(kid)
            changes = {kid: {"activated_at": at}, old: {"retired_until": until}}
            challenge = _changed(manifest.challenge, changes)
            _write(directory, manifest, challenge=_in_order(*challenge))
    return kid, old


def retire(
    directory: Path, kind: WorkerKind, kid: str, *, now: datetime, is_compromised: bool = False
) -> None:
    """Take a key away for good: one that is prepared, or a retired one that nothing needs any more.

    `is_compromised` does not ask who needs it: what is still sealed to it, or signed with it, is lost.

    Raises:
        NotFound: there is no such key.
        Conflict: it is the active one, or something may still need it.
        ConfigRefused: the keys are not usable.
    """
    manifest, keys = KeyManifest.read(directory), KeyDirectory(directory)
    row = _found(rows_of(manifest, keys), kind, kid)
    check_retiring(row, now, is_compromised=is_compromised)
    match kind:
        case "signing":
            left = tuple(one for one in manifest.signing if one.kid != kid)
            _write(directory, manifest, signing=left, tells_agents=True)
            keys.remove_signing(kid)
        case "decryption":
            rest = tuple(one for one in manifest.decryption if one.kid != kid)
            _write(directory, manifest, decryption=rest, tells_agents=row.state != "prepared")
            keys.remove_decryption(kid)
        case "challenge":
            others = tuple(one for one in manifest.challenge if one.kid != kid)
            _write(directory, manifest, challenge=others)
            keys.remove_challenge(kid)


def check_retiring(row: KeyRow, now: datetime, *, is_compromised: bool) -> None:
    """Return only if a key may go; raises `Conflict`."""
    if row.state == "active":
        message = f"{row.kind} key {row.kid} is the active one: prepare and activate another first"
        raise Conflict(message)
    needed = row.needed_until
    if row.state == "retired" and needed is not None and needed > now and not is_compromised:
        message = (
            f"{row.kind} key {row.kid} may be needed until {rfc3339(needed)};"
            " --compromised takes it away all the same"
        )
        raise Conflict(message)


def worker_rows(directory: Path) -> list[KeyRow]:
    """Return the keys of a folder but for the CAs; raises `ConfigRefused`."""
    return rows_of(KeyManifest.read(directory), KeyDirectory(directory))


def rows_of(manifest: KeyManifest, keys: KeyDirectory) -> list[KeyRow]:
    """Return the keys that a manifest names; raises `ConfigRefused`."""
    rows = [_signing_row(one, manifest.version) for one in _with_first(manifest, keys)]
    for entry in manifest.decryption:
        ends = time_of(entry.not_after)
        is_retired = entry.state == "retired" and ends is not None
        rows.append(
            KeyRow(
                "decryption",
                entry.kid,
                manifest.version,
                entry.state,
                time_of(entry.prepared_at),
                time_of(entry.not_before),
                ends_at=ends,
                needed_until=ends + DEFAULT_GRACE if is_retired and ends else None,
            )
        )
    for place, challenge in enumerate(manifest.challenge):
        rows.append(
            KeyRow(
                "challenge",
                challenge.kid,
                manifest.version,
                _challenge_state(challenge, place),
                time_of(challenge.prepared_at),
                time_of(challenge.activated_at),
                needed_until=time_of(challenge.retired_until),
            )
        )
    return rows


def _signing_row(one: SigningEntry, version: int) -> KeyRow:
    return KeyRow(
        "signing",
        one.kid,
        version,
        one.state,
        time_of(one.prepared_at),
        time_of(one.activated_at),
        needed_until=time_of(one.retired_until),
    )


def _with_first(manifest: KeyManifest, keys: KeyDirectory) -> tuple[SigningEntry, ...]:
    """Return the signing keys; before one was ever prepared there is the first, and no manifest names it."""
    if manifest.signing:
        return manifest.signing
    first = keys.signing()
    return (SigningEntry(kid=first.kid, public=b64(first.public), state="active"),)


def _challenge_state(entry: ChallengeEntry, place: int) -> State:
    if entry.retired_until is not None:
        return "retired"
    return "active" if place == 0 else "prepared"


def _in_order(*entries: ChallengeEntry) -> tuple[ChallengeEntry, ...]:
    """Return the active one first, then the prepared ones, then the retired ones, the newest first."""
    usable = [entry for entry in entries if entry.retired_until is None]
    retired = [entry for entry in entries if entry.retired_until is not None]
    return (*usable, *sorted(retired, key=lambda one: one.retired_until or "", reverse=True))


def _changed(
    entries: tuple[Entry, ...], changes: dict[str, dict[str, object]]
) -> tuple[Entry, ...]:
    return tuple(entry.model_copy(update=changes.get(entry.kid, {})) for entry in entries)


def _names(rows: list[KeyRow], state: State) -> list[str]:
    return [row.kid for row in rows if row.state == state]


def _found(rows: list[KeyRow], kind: str, kid: str) -> KeyRow:
    for row in rows:
        if (row.kind, row.kid) == (kind, kid):
            return row
    message = f"no {kind} key {kid}: `watchword keys list` shows those that there are"
    raise NotFound(message)


def _write(
    directory: Path, manifest: KeyManifest, *, tells_agents: bool = False, **changes: object
) -> None:
    version = manifest.version + tells_agents
    changed = manifest.model_copy(update={"version": version, **changes})
    changed.write(directory)
