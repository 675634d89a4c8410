"""A join token, as an operator hands it out and as a machine shows it.

As text it is `ww1.<id>.<secret>`: 16 characters of [a-z0-9] that are public and name the token,
and 32 random bytes in base64url without padding. The service stores their SHA-256 and never the
secret itself; 256 random bits need no salt and no slow hash.

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
from watchword.schemas.ids import TokenId

ID_CHARACTERS = 16
SECRET_BYTES = 32
PAYLOAD_BYTES = 4 + ID_CHARACTERS + 4 + SECRET_BYTES
"""Every payload has exactly this many bytes."""

_ALPHABET = string.ascii_lowercase + string.digits
_ID = re.compile(rb"[a-z0-9]{16}")
_TEXT = re.compile(r"ww1\.([a-z0-9]{16})\.([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class JoinTokenSecret:
    """A token with its secret half. The secret does not show in `repr`."""

    id: TokenId
    secret: bytes = field(repr=False)
    """32 bytes."""


def new_token() -> tuple[TokenId, str, bytes]:
    """Return a new token: its id, its text (shown once, to whoever asked), the SHA-256 of its secret."""
    token_id = TokenId("".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARACTERS)))
    secret = secrets.token_bytes(SECRET_BYTES)
    text = f"ww1.{token_id}.{b64url(secret).decode()}"
    return token_id, text, sha256(secret).digest()


def parse_token(text: str) -> JoinTokenSecret:
    """Return the token that a person pasted or a file holds; white space around it is dropped.

    Raises:
        BadArgument: it is no token. The text is not repeated: it may be another secret.
    """
    text = text.strip()
    found = _TEXT.fullmatch(text)
    if found is None:
        message = (
            "this is no join token: one looks like ww1.<16 characters>.<43 characters>"
            f" and has {len('ww1..') + 16 + 43} characters, not {len(text)}"
        )
        raise BadArgument(message)
    secret = urlsafe_b64decode(found[2] + "=")
    if b64url(secret).decode() != found[2]:  # the two bits that encode nothing are zero
        message = "this join token was changed on its way: its last character cannot be right"
        raise BadArgument(message)
    return JoinTokenSecret(TokenId(found[1]), secret)


def encode(token_id: str, secret: bytes) -> bytes:
    """Return the evidence that shows a token.

    Raises:
        ValueError: the id has not its 16 characters, or the secret not its 32 bytes.
    """
    name = token_id.encode()
    if not _ID.fullmatch(name) or len(secret) != SECRET_BYTES:
        message = "no id and secret of a join token"
        raise ValueError(message)
    return length_prefixed(name, secret)


def decode(payload: bytes) -> tuple[TokenId, bytes]:
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
    if not _ID.fullmatch(name) or len(secret) != SECRET_BYTES:
        message = "payload"
        raise WrongShape(message)
    return TokenId(name.decode()), secret
