"""The documents that the deployment publishes: key set, trust bundle, CRL; the last of each.

They are signed, and agents verify them. The gateway passes on what it read from the compacted
topic, whose ACL says who may write it.
"""

from dataclasses import dataclass
from hashlib import sha256

from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY, is_crl_key

_KEYS = (KEY_SET_KEY, TRUST_BUNDLE_KEY, CRL_KEY)
_MOST_CRLS = 32
"""Of single CAs; a deployment has at most 16."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document; `etag` is a strong validator (RFC 9110, 8.8.3), quoted."""

    value: bytes
    etag: str


class Published:
    """The last document of each kind, by the keys of the topic."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._documents: dict[bytes, Document] = {}

    def put(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic; a tombstone withdraws, an unknown key is passed over."""
        if key is None or not (key in _KEYS or is_crl_key(key)):
            return
        if value is None:
            self._documents.pop(key, None)
        elif key in self._documents or len(self._documents) < len(_KEYS) + _MOST_CRLS:
            self._documents[key] = Document(value, f'"{sha256(value).hexdigest()[:32]}"')

    def get(self, key: bytes) -> Document | None:
        """Return the document, if it is known."""
        return self._documents.get(key)
