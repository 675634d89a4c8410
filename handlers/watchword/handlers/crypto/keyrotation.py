"""Replacing keys while they are in use: the old one stays as long as something may need it."""

from datetime import datetime, timedelta
from pathlib import Path

from watchword.handlers.crypto.join_crypto import DEFAULT_GRACE
from watchword.handlers.crypto.keydirectory import KeyDirectory
from watchword.handlers.crypto.keyfiles import DECRYPTION_LIFETIME
from watchword.handlers.crypto.keymanifest import ChallengeEntry, DecryptionEntry, KeyManifest
from watchword.schemas.times import parse_rfc3339, rfc3339

DEFAULT_LEAD = timedelta(hours=1)
"""How long workers have to load a new decryption key before the first agent seals to it."""

DEFAULT_OVERLAP = timedelta(days=1)
"""How long agents may go on sealing to the old key: until they have fetched the new key set."""

DEFAULT_CHALLENGE_LIFE = timedelta(hours=1)
"""How long a state under a retired challenge key may still come back."""


def rotate_decryption(
    directory: Path,
    *,
    now: datetime,
    lifetime: timedelta = DECRYPTION_LIFETIME,
    lead: timedelta = DEFAULT_LEAD,
    overlap: timedelta = DEFAULT_OVERLAP,
    grace: timedelta = DEFAULT_GRACE,
) -> KeyManifest:
    """Make a decryption key that begins after `lead`, and return the new manifest.

    The others end `overlap` later at the latest; those whose end is longer ago than `grace` are
    deleted. The key set has a new version, to be published; workers load the new key within `lead`.

    Raises:
        ConfigRefused: the manifest is not usable.
    """
    manifest = KeyManifest.read(directory)
    keys = KeyDirectory(directory)
    begins = now + lead
    kept: list[DecryptionEntry] = []
    dropped: list[str] = []
    for entry in manifest.decryption:
        ends = min(parse_rfc3339(entry.not_after), begins + overlap)
        if ends + grace <= now:
            dropped.append(entry.kid)
        else:
            kept.append(entry.model_copy(update={"not_after": rfc3339(ends)}))
    new = keys.make_decryption(begins=begins, lifetime=lifetime)
    changed = manifest.model_copy(
        update={"version": manifest.version + 1, "decryption": (new, *kept)}
    )
    changed.write(directory)
    for kid in dropped:  # after the manifest: it must never name a key that is gone
        keys.remove_decryption(kid)
    return changed


def rotate_challenge(
    directory: Path, *, now: datetime, challenge_life: timedelta = DEFAULT_CHALLENGE_LIFE
) -> KeyManifest:
    """Activate the next challenge key, make the one after it, and return the new manifest.

    The next key has been on every worker since the rotation before, so that each can open what any
    other seals. The last active one opens states for `challenge_life` more, and is then deleted by
    the rotation that follows.

    Raises:
        ConfigRefused: the manifest is not usable.
    """
    manifest = KeyManifest.read(directory)
    keys = KeyDirectory(directory)
    active, *others = manifest.challenge
    waiting = [entry for entry in others if entry.retired_until is None]
    retired = [entry for entry in others if entry.retired_until is not None]
    waiting.append(keys.make_challenge())
    retired.insert(0, active.model_copy(update={"retired_until": rfc3339(now + challenge_life)}))
    kept = [entry for entry in retired if not _is_past(entry, now)]
    changed = manifest.model_copy(update={"challenge": (*waiting, *kept)})
    changed.write(directory)
    for entry in retired:
        if _is_past(entry, now):
            keys.remove_challenge(entry.kid)
    return changed


def _is_past(entry: ChallengeEntry, now: datetime) -> bool:
    return entry.retired_until is not None and parse_rfc3339(entry.retired_until) <= now
