"""Replacing the node CA: prepared (agents and peers are told of it), active (it issues), retired (its certificates end).

What each CA has issued stays valid; its key signs CRLs until the last of those certificates has ended. Changes
`ca.json` in the signer's folder, under a lock; workers and `trust publish` read a copy of it if their folder is another.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.camanifest import CaEntry, CaManifest, read_ca_manifest
from watchword.handlers.crypto.keydirectory import KeyDirectory
from watchword.handlers.crypto.keyfiles import authority_of
from watchword.handlers.crypto.keymanifest import MOST_KEYS, time_of
from watchword.handlers.crypto.keyrotation import KeyRow, check_retiring
from watchword.handlers.errors import Conflict, NotFound
from watchword.schemas.times import rfc3339

KIND = "ca"

AuthorityOf = Callable[[CaEntry], Authority]
"""Opens the key of a CA; raises `ConfigRefused` or `SignerUnavailable` if that cannot be done now."""


def prepare_ca(
    directory: Path,
    trust_domain: str,
    *,
    now: datetime,
    made: Callable[[], CaEntry] | None = None,
) -> str:
    """Make the CA that will follow the active one, and return its name.

    `made` makes the key elsewhere, such as in a hardware module, and returns the entry.

    Raises:
        Conflict: one is prepared already, or too many that are retired are still there.
        ConfigRefused: the CAs are not usable.
    """
    manifest = read_ca_manifest(directory)
    if found := [one.kid for one in manifest.authorities if one.state == "prepared"]:
        message = f"CA {found[0]} is prepared already: activate or retire it first"
        raise Conflict(message)
    if len(manifest.authorities) >= MOST_KEYS:
        message = "there are too many CAs: retire those whose certificates have ended"
        raise Conflict(message)
    new = made() if made else KeyDirectory(directory).make_next_ca(trust_domain, now=now)
    if new.kid in {one.kid for one in manifest.authorities}:
        message = f"the key of {new.kid} is a CA's here already"
        raise Conflict(message)
    _write(directory, manifest, (new, *manifest.authorities))
    return new.kid


def activate_ca(
    directory: Path, authority: AuthorityOf, *, now: datetime, certificate_life: timedelta
) -> tuple[str, str]:
    """Issue with the prepared CA from now on; the active one is retired. Return the names of both.

    Raises:
        Conflict: none is prepared.
        ConfigRefused, SignerUnavailable: the CAs are not usable, or the prepared one's key cannot be opened.
    """
    manifest = read_ca_manifest(directory)
    prepared = [one for one in manifest.authorities if one.state == "prepared"]
    if not prepared:
        message = "no CA is prepared: run `watchword keys prepare ca` first"
        raise Conflict(message)
    authority(prepared[0])
    new, old = prepared[0].kid, manifest.active.kid
    changes: dict[str, dict[str, object]] = {
        new: {"state": "active", "activated_at": rfc3339(now)},
        old: {"state": "retired", "retired_until": rfc3339(now + certificate_life)},
    }
    changed = [one.model_copy(update=changes.get(one.kid, {})) for one in manifest.authorities]
    _write(directory, manifest, tuple(changed))
    return new, old


def retire_ca(
    directory: Path, kid: str, *, now: datetime, valid: int | None, is_compromised: bool = False
) -> None:
    """Take a CA away for good: one that is prepared, or a retired one whose certificates have ended.

    `valid` is how many of its certificates are still valid, by the database; None if there is none to
    ask. `is_compromised` does not look at them: their nodes have to join anew.

    Raises:
        NotFound: there is no such CA.
        Conflict: it is the active one, or certificates of it may still be valid.
        ConfigRefused: the CAs are not usable.
    """
    manifest = read_ca_manifest(directory)
    row = next((one for one in ca_rows(directory) if one.kid == kid), None)
    if row is None:
        message = f"no CA {kid}: `watchword keys list` shows those that there are"
        raise NotFound(message)
    check_retiring(row, now, is_compromised=is_compromised)
    if valid and not is_compromised:
        message = f"{valid} certificates of CA {kid} are still valid"
        raise Conflict(message)
    left = tuple(one for one in manifest.authorities if one.kid != kid)
    _write(directory, manifest, left)
    KeyDirectory(directory).remove_ca(kid)


def ca_rows(directory: Path) -> list[KeyRow]:
    """Return the CAs of a folder; raises `ConfigRefused`."""
    manifest = read_ca_manifest(directory)
    return [_row(one, manifest.version, one.loaded()[0]) for one in manifest.authorities]


def issuing_authorities(directory: Path, authority: AuthorityOf) -> list[Authority]:
    """Return the CAs that have issued: the active one first, then the retired ones, whose CRLs are still signed.

    Raises:
        ConfigRefused, SignerUnavailable: one of them cannot be used; half of them is none.
    """
    manifest = read_ca_manifest(directory)
    issuing = [one for one in manifest.authorities if one.state != "prepared"]
    return [authority(one) for one in sorted(issuing, key=lambda one: one.state != "active")]


def file_authority(directory: Path, *, trust_domain: str | None = None) -> AuthorityOf:
    """Return what opens keys that are files of this folder."""

    def opened(entry: CaEntry) -> Authority:
        return authority_of(entry, KeyDirectory(directory).ca_key_of, trust_domain=trust_domain)

    return opened


def _row(entry: CaEntry, version: int, issuing: x509.Certificate) -> KeyRow:
    return KeyRow(
        KIND,
        entry.kid,
        version,
        entry.state,
        time_of(entry.prepared_at),
        time_of(entry.activated_at) or issuing.not_valid_before_utc,
        ends_at=issuing.not_valid_after_utc,
        needed_until=time_of(entry.retired_until),
        where="file" if entry.in_hsm is None else f"hsm: {entry.in_hsm}",
    )


def _write(directory: Path, manifest: CaManifest, authorities: tuple[CaEntry, ...]) -> None:
    CaManifest(version=manifest.version + 1, authorities=authorities).write(directory)
