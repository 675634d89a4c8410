"""What the key directory says about its keys: `keys.json`, with no secret in it.

It is replaced as a whole. A key file that it does not name is not in use.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from watchword.handlers.crypto.private_files import read_public, replace
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant
from watchword.schemas.times import parse_rfc3339

MANIFEST = "keys.json"

MOST_KEYS = 16
"""Of one kind, retired ones included."""

MOST_HANDOVERS = 63
"""A trust bundle holds one more: that of the key which is prepared."""

State = Literal["prepared", "active", "retired"]

Manifest = TypeVar("Manifest", bound=Wire)

_Kid = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class DecryptionEntry(Wire):
    """One decryption key: the file `decryption/<kid>.pem`, and when agents may seal to it."""

    kid: _Kid
    not_before: Instant | None = None
    """None while it is prepared: workers open with it, and no agent is told of it."""
    not_after: Instant | None = None
    prepared_at: Instant | None = None
    retired_at: Instant | None = None

    @property
    def state(self) -> State:
        """Prepared, active, or retired: agents that have an older key set may still seal to it."""
        if self.not_before is None:
            return "prepared"
        return "active" if self.retired_at is None else "retired"


class ChallengeEntry(Wire):
    """One challenge key: the file `challenge/<kid>.key`. A retired one is kept until a time."""

    kid: _Kid
    retired_until: Instant | None = None
    prepared_at: Instant | None = None
    activated_at: Instant | None = None


class SigningEntry(Wire):
    """One signing key: the file `signing/<kid>.pem`; `signing.key.pem` for the first one."""

    kid: _Kid
    public: Annotated[str, Field(min_length=44, max_length=44)]
    """32 bytes in base64."""
    state: State
    handover: str | None = None
    """Of a prepared one: the active key's word for it (JWS)."""
    prepared_at: Instant | None = None
    activated_at: Instant | None = None
    retired_until: Instant | None = None


class KeyManifest(Wire):
    """The whole manifest."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    """Of the key set and the trust bundle: one more with every change that agents must see."""
    trust_domain: Annotated[str, Field(min_length=1, max_length=255)]
    decryption: Annotated[
        tuple[DecryptionEntry, ...], Field(min_length=1, max_length=MOST_KEYS, strict=False)
    ]
    challenge: Annotated[
        tuple[ChallengeEntry, ...], Field(min_length=1, max_length=MOST_KEYS, strict=False)
    ]
    """The active one first, then the prepared ones, then the retired ones."""
    signing: Annotated[tuple[SigningEntry, ...], Field(max_length=MOST_KEYS, strict=False)] = ()
    """Empty until one is prepared to follow the first, which is `signing.key.pem`."""
    handovers: Annotated[tuple[str, ...], Field(max_length=MOST_HANDOVERS, strict=False)] = ()
    """What each signing key said of the next one, the oldest first; kept for agents that were away for years."""

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Return the manifest of a key directory; raises `ConfigRefused`."""
        path = directory / MANIFEST
        manifest = read_manifest(cls, path)
        try:
            for entry in manifest.decryption:
                _check_times(entry.not_before, entry.not_after, entry.prepared_at, entry.retired_at)
                if (entry.not_before is None) != (entry.not_after is None):
                    raise ValueError  # noqa: TRY301 - told like the others
            for challenge in manifest.challenge:
                _check_times(challenge.retired_until, challenge.prepared_at, challenge.activated_at)
            for signing in manifest.signing:
                _check_times(signing.retired_until, signing.prepared_at, signing.activated_at)
        except ValueError:
            raise ConfigRefused([f"{path}: a time is none"]) from None
        if manifest.signing and [s.state for s in manifest.signing].count("active") != 1:
            raise ConfigRefused([f"{path}: there is not one active signing key"])
        return manifest

    def write(self, directory: Path) -> None:
        """Replace the manifest of a key directory."""
        write_manifest(self, directory / MANIFEST)


def read_manifest(model: type[Manifest], path: Path) -> Manifest:
    """Return a manifest from its file; raises `ConfigRefused`."""
    try:
        return model.model_validate(json.loads(read_public(path)), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ConfigRefused(problems) from None
    except (ValueError, RecursionError):
        raise ConfigRefused([f"{path} is not a manifest of keys"]) from None


def write_manifest(manifest: Wire, path: Path) -> None:
    """Replace a manifest's file: readers see the old one or the new one."""
    text = json.dumps(manifest.model_dump(by_alias=True, mode="json", exclude_none=True), indent=2)
    replace(path, f"{text}\n".encode())


def time_of(instant: str | None) -> datetime | None:
    """Return a time that may not be there."""
    return None if instant is None else parse_rfc3339(instant)


def _check_times(*instants: str | None) -> None:
    """Raise `ValueError` if one of them is no time."""
    for instant in instants:
        time_of(instant)
