"""What the key directory says about its keys: `keys.json`, with no secret in it.

It is replaced as a whole. A key file that it does not name is not in use.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError

from watchword.handlers.crypto.private_files import read_public, replace
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant
from watchword.schemas.times import parse_rfc3339

MANIFEST = "keys.json"

_Kid = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class DecryptionEntry(Wire):
    """One decryption key: the file `decryption/<kid>.pem`, and when agents may seal to it."""

    kid: _Kid
    not_before: Instant
    not_after: Instant

    def ends(self) -> datetime:
        """Return `not_after` as a time."""
        return parse_rfc3339(self.not_after)


class ChallengeEntry(Wire):
    """One challenge key: the file `challenge/<kid>.key`. A retired one is kept until a time."""

    kid: _Kid
    retired_until: Instant | None = None


class KeyManifest(Wire):
    """The whole manifest."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    """Of the key set and the trust bundle: one more with every change that agents must see."""
    trust_domain: Annotated[str, Field(min_length=1, max_length=255)]
    decryption: Annotated[
        tuple[DecryptionEntry, ...], Field(min_length=1, max_length=16, strict=False)
    ]
    challenge: Annotated[
        tuple[ChallengeEntry, ...], Field(min_length=1, max_length=16, strict=False)
    ]
    """The active one first, then the next one, then the retired ones."""

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Return the manifest of a key directory; raises `ConfigRefused`."""
        path = directory / MANIFEST
        try:
            manifest = cls.model_validate(
                json.loads(read_public(path)), by_alias=True, by_name=False
            )
            for entry in manifest.decryption:
                parse_rfc3339(entry.not_before)
                parse_rfc3339(entry.not_after)
            for retired in manifest.challenge:
                parse_rfc3339(retired.retired_until or "1970-01-01T00:00:00.000Z")
        except ValidationError as error:
            problems = [
                f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()
            ]
            raise ConfigRefused(problems) from None
        except (ValueError, RecursionError):
            raise ConfigRefused([f"{path} is not a manifest of keys"]) from None
        return manifest

    def write(self, directory: Path) -> None:
        """Replace the manifest of a key directory."""
        text = json.dumps(self.model_dump(by_alias=True, mode="json"), indent=2)
        replace(directory / MANIFEST, f"{text}\n".encode())
