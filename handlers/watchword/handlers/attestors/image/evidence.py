"""An image's secret, as an operator installs it and as a machine shows it.

As text it is `wi1.<id>.<secret>`: 16 characters of [a-z0-9] that are public and name the image, and
32 random bytes in base64url without padding, made by us. The service stores their SHA-256 and never
the secret itself.

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
_ID = re.compile(rb"[a-z0-9]{16}")
_TEXT = re.compile(r"wi1\.([a-z0-9]{16})\.([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ImageSecret:
    """An image's id with its secret, which does not show in `repr`."""

    id: str
    secret: bytes = field(repr=False)
    """32 bytes."""

    @property
    def text(self) -> str:
        """What is installed on the image's machines: a secret."""
        return f"wi1.{self.id}.{b64url(self.secret).decode()}"

    def encode(self) -> bytes:
        """Return the evidence that shows it."""
        return length_prefixed(self.id.encode(), self.secret)


def new_image() -> tuple[str, str, bytes]:
    """Return a new image's id, its text (shown once, to whoever asked), the SHA-256 of its secret."""
    image_id = "".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARACTERS))
    made = ImageSecret(image_id, secrets.token_bytes(SECRET_BYTES))
    return image_id, made.text, sha256(made.secret).digest()


def parse_image(text: str) -> ImageSecret:
    """Return the secret that a file holds; white space around it is dropped.

    Raises:
        BadArgument: it is none. The text is not repeated: it may be another secret.
    """
    text = text.strip()
    found = _TEXT.fullmatch(text)
    if found is None:
        message = (
            "this is no image's secret: one looks like wi1.<16 characters>.<43 characters>"
            f" and has {len('wi1..') + 16 + 43} characters, not {len(text)}"
        )
        raise BadArgument(message)
    secret = urlsafe_b64decode(found[2] + "=")
    if b64url(secret).decode() != found[2]:  # the two bits that encode nothing are zero
        message = "this secret was changed on its way: its last character cannot be right"
        raise BadArgument(message)
    return ImageSecret(found[1], secret)


def decode(payload: bytes) -> ImageSecret:
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
    return ImageSecret(name.decode(), secret)
