"""Secrets that we make, found by a public id: join tokens and images' secrets.

As text one is `<prefix>.<id>.<secret>`: 16 characters of [a-z0-9] that are public and name it, and 32
random bytes in base64url without padding. The service stores their SHA-256 and never the secret
itself; 256 random bits need no salt and no slow hash.

As evidence it is two length-prefixed parts (`schemas.canonical.length_prefixed`): the id in ASCII
and the 32 bytes.
"""

import re
import secrets
import string
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from hashlib import sha256

from watchword.handlers.errors import BadArgument
from watchword.schemas.canonical import b64url, length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape

ID_CHARACTERS = 16
SECRET_BYTES = 32
PAYLOAD_BYTES = 4 + ID_CHARACTERS + 4 + SECRET_BYTES
"""Every payload has exactly this many bytes."""

_ALPHABET = string.ascii_lowercase + string.digits
_ID = re.compile(r"[a-z0-9]{16}")
_TEXT = re.compile(r"([a-z0-9]{16})\.([A-Za-z0-9_-]{43})", re.ASCII)
_TEXT_CHARACTERS = ID_CHARACTERS + 1 + 43


def is_id(text: str) -> bool:
    """Tell whether a text can be the public id of a secret."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """An id with its secret half, which does not show in `repr`."""

    id: str
    secret: bytes = field(repr=False)
    """32 bytes."""

    def encode(self) -> bytes:
        """Return the evidence that shows it.

        Raises:
            ValueError: the id has not its 16 characters, or the secret not its 32 bytes.
        """
        if not _ID.fullmatch(self.id) or len(self.secret) != SECRET_BYTES:
            message = "no id and secret"
            raise ValueError(message)
        return length_prefixed(self.id.encode(), self.secret)


@dataclass(frozen=True, slots=True)
class Made:
    """A new secret: its id, its text (shown once, to whoever asked), the SHA-256 that is stored."""

    id: str
    text: str = field(repr=False)
    sha256: bytes


def make(prefix: str) -> Made:
    """Return a new secret of this kind: 256 random bits."""
    made = NamedSecret(
        "".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARACTERS)),
        secrets.token_bytes(SECRET_BYTES),
    )
    return Made(made.id, text_of(prefix, made), sha256(made.secret).digest())


def text_of(prefix: str, named: NamedSecret) -> str:
    """Return the text that a person or a file keeps: a secret."""
    return f"{prefix}.{named.id}.{b64url(named.secret).decode()}"


def parse(prefix: str, what: str, text: str) -> NamedSecret:
    """Return the secret that a person pasted or a file holds; white space around it is dropped.

    Raises:
        BadArgument: it is no such secret, called `what`. The text is not repeated: it may be another one.
    """
    text = text.strip()
    kind, _, rest = text.partition(".")
    found = _TEXT.fullmatch(rest)
    if kind != prefix or found is None:
        message = (
            f"this is no {what}: one looks like {prefix}.<16 characters>.<43 characters>"
            f" and has {len(prefix) + 1 + _TEXT_CHARACTERS} characters, not {len(text)}"
        )
        raise BadArgument(message)
    secret = urlsafe_b64decode(found[2] + "=")
    if b64url(secret).decode() != found[2]:  # the two bits that encode nothing are zero
        message = f"this {what} was changed on its way: its last character cannot be right"
        raise BadArgument(message)
    return NamedSecret(found[1], secret)


def decode(payload: bytes) -> NamedSecret:
    """Return id and secret as a machine showed them. Both are unproven.

    Raises:
        SchemaError: the payload is anything but the one encoding of 16 and 32 bytes.
    """
    # 1. The size is fixed, so nothing is looked at in any other payload.
    # 2. Two parts, and no bytes left over.
    # 3. Each part is of its size, and the id of its alphabet.

    # Step 1
    if len(payload) != PAYLOAD_BYTES:
        message = "payload"
        raise WrongShape(message)

    # Step 2
    name, secret = read_length_prefixed(payload, 2)

    # Step 3
    return checked(name, secret)


def checked(name: bytes, secret: bytes) -> NamedSecret:
    """Return both halves if each is of its size and alphabet; raises `WrongShape`."""
    text = name.decode("ascii", errors="replace")
    if not _ID.fullmatch(text) or len(secret) != SECRET_BYTES:
        message = "payload"
        raise WrongShape(message)
    return NamedSecret(text, secret)
