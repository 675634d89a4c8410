"""SHA-256 digests as people type them."""

from typing import overload

from watchword.handlers.errors import BadArgument

SHA256_BYTES = 32


@overload
def typed_digest(text: str) -> bytes: ...
@overload
def typed_digest(text: str | None) -> bytes | None: ...
def typed_digest(text: str | None) -> bytes | None:
    """Return 32 bytes of 64 hexadecimal digits; raises `BadArgument`. None stays None."""
    if text is None:
        return None
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != SHA256_BYTES:
        message = "a SHA-256 has 64 hex digits"
        raise BadArgument(message)
    return found
