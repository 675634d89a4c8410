"""An image's secret, as an operator installs it (`wi1.<id>.<secret>`) and as a machine shows it.

Text and encoding are those of any `crypto.named_secrets`. Where the image asks for another attestor's
proof, two more length-prefixed parts follow: that attestor's id, and the evidence of its own form.
"""

import re
from dataclasses import dataclass, field

from watchword.handlers.crypto import named_secrets
from watchword.handlers.crypto.named_secrets import PAYLOAD_BYTES, NamedSecret
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape
from watchword.schemas.ids import UnverifiedPayload
from watchword.schemas.requests import ATTESTOR_ID

MAX_SECOND_BYTES = 384 * 1024
"""The evidence of the other attestor: what a request can carry at most."""

_MAX_ID_BYTES = 63
_PREFIX = "wi1"
_BY_OTHER = re.compile(r"attestor:(.*)")


@dataclass(frozen=True, slots=True)
class SecondEvidence:
    """What the machine shows to another attestor: its id, and evidence in that attestor's own form."""

    attestor: str
    payload: UnverifiedPayload = field(repr=False)


@dataclass(frozen=True, slots=True)
class ImageEvidence:
    """An image's secret, and what a second attestor is shown, if anything is."""

    shown: NamedSecret
    second: SecondEvidence | None = None

    def encode(self) -> bytes:
        """Return the payload."""
        first = self.shown.encode()
        if self.second is None:
            return first
        return first + length_prefixed(self.second.attestor.encode(), self.second.payload)


def asks_for(second_fact: str) -> str | None:
    """Return the id of the attestor whose proof a `second_fact` of an image demands; None if it demands none."""
    found = _BY_OTHER.fullmatch(second_fact)
    return found[1] if found is not None and ATTESTOR_ID.fullmatch(found[1]) else None


def new_image() -> tuple[str, str, bytes]:
    """Return a new image's id, its text (shown once, to whoever asked), the SHA-256 of its secret."""
    made = named_secrets.make(_PREFIX)
    return made.id, made.text, made.sha256


def text_of(shown: NamedSecret) -> str:
    """Return what is installed on the image's machines: a secret."""
    return named_secrets.text_of(_PREFIX, shown)


def parse_image(text: str) -> NamedSecret:
    """Return the secret that a file holds; raises `BadArgument`, which repeats nothing of it."""
    return named_secrets.parse(_PREFIX, "image's secret", text)


def decode(payload: bytes) -> ImageEvidence:
    """Return what a machine showed. All of it is unproven.

    Raises:
        SchemaError: the payload is anything but the one encoding of 16 and 32 bytes, alone or with a second part.
    """
    # 1. The secret alone has one size, and is read as such.
    # 2. Anything longer has four parts and no bytes left over; its size is bounded before it is looked at.
    # 3. The first two are a secret, the third can be an attestor's id.

    # Step 1
    if len(payload) == PAYLOAD_BYTES:
        return ImageEvidence(named_secrets.decode(payload))

    # Step 2
    if len(payload) > PAYLOAD_BYTES + 8 + _MAX_ID_BYTES + MAX_SECOND_BYTES:
        message = "payload"
        raise WrongShape(message)
    name, secret, attestor, second = read_length_prefixed(payload, 4)

    # Step 3
    shown = named_secrets.checked(name, secret)
    try:
        other = attestor.decode("ascii")
    except UnicodeDecodeError:
        other = ""
    if not ATTESTOR_ID.fullmatch(other):
        message = "payload"
        raise WrongShape(message)
    return ImageEvidence(shown, SecondEvidence(other, UnverifiedPayload(second)))
