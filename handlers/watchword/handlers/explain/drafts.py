"""A draft that requests are judged against: a policy, and files that stand in the place of the workers' own. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watchword.handlers.errors import BadArgument
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.errors import SchemaError

MOST_BYTES = 4 * 1024 * 1024
"""What a draft may have in all, files included."""

Files = dict[str, bytes]
"""Files by their paths inside a folder."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is drafted; what is empty is as the workers have it."""

    attestors: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The table `[attestors]` of a configuration file."""
    files: Files = field(default_factory=Files)
    """Files that the policy names, by the paths that it names."""
    anchors: Mapping[str, Files] = field(default_factory=dict[str, Files])
    """Folders of anchors by attestor."""

    def encode(self) -> bytes:
        """Return it as a job carries it; raises `BadArgument` if it is too large."""
        said = {
            "attestors": self.attestors,
            "files": _text(self.files),
            "anchors": {name: _text(files) for name, files in self.anchors.items()},
        }
        try:
            encoded = json.dumps(said).encode()
        except TypeError as error:
            message = f"the policy has what a configuration cannot have: {error}"
            raise BadArgument(message) from error
        if len(encoded) > MOST_BYTES:
            message = f"the draft is too large: {len(encoded)} bytes of at most {MOST_BYTES}, files included"
            raise BadArgument(message)
        return encoded

    @classmethod
    def decode(cls, data: bytes) -> "Draft":
        """Return the draft of a job; raises `BadArgument`."""
        try:
            said = json.loads(data)
            return cls(
                said["attestors"],
                _bytes(said["files"]),
                {name: _bytes(files) for name, files in said["anchors"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, SchemaError) as error:
            message = f"the draft cannot be read: {type(error).__name__}"
            raise BadArgument(message) from error


def _text(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64(content) for name, content in files.items()}


def _bytes(files: Mapping[str, str]) -> Files:
    return {name: unb64(content) for name, content in files.items()}
