"""A join token, as an operator hands it out (`ww1.<id>.<secret>`) and as a machine shows it.

Its text and its encoding are those of any `crypto.named_secrets`.
"""

from watchword.handlers.crypto import named_secrets
from watchword.handlers.crypto.named_secrets import PAYLOAD_BYTES, NamedSecret
from watchword.schemas.ids import TokenId

__all__ = ["PAYLOAD_BYTES", "decode", "encode", "new_token", "parse_token"]

_PREFIX = "ww1"


def new_token() -> tuple[TokenId, str, bytes]:
    """Return a new token: its id, its text (shown once, to whoever asked), the SHA-256 of its secret."""
    made = named_secrets.make(_PREFIX)
    return TokenId(made.id), made.text, made.sha256


def parse_token(text: str) -> NamedSecret:
    """Return the token that a person pasted or a file holds; raises `BadArgument`, which repeats nothing of it."""
    return named_secrets.parse(_PREFIX, "join token", text)


def encode(token_id: str, secret: bytes) -> bytes:
    """Return the evidence that shows a token; raises `ValueError` unless it has 16 characters and 32 bytes."""
    return NamedSecret(token_id, secret).encode()


def decode(payload: bytes) -> tuple[TokenId, bytes]:
    """Return id and secret as a machine showed them, both unproven; raises `SchemaError`."""
    shown = named_secrets.decode(payload)
    return TokenId(shown.id), shown.secret
