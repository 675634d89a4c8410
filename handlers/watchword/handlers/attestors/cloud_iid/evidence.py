"""What `cloud-iid` shows: one identity of one cloud, in raw bytes.

Four length-prefixed parts: `cloud-iid/1`, one byte for provider and form, the document (only beside a
bare signature of AWS), and the signature, which holds what it signs everywhere else.
"""

from dataclasses import dataclass
from typing import Literal

from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape

FORM = b"cloud-iid/1"
MAX_DOCUMENT_BYTES = 16 * 1024
MAX_SIGNATURE_BYTES = 32 * 1024

Form = Literal["rsa2048", "dsa", "rsa", "token", "attested"]

FORMS: dict[int, tuple[str, Form]] = {
    0x11: ("aws", "rsa2048"),
    0x12: ("aws", "dsa"),
    0x13: ("aws", "rsa"),
    0x21: ("gcp", "token"),
    0x31: ("azure", "attested"),
}
"""The byte, the provider, and what its metadata service gave."""

_BYTES = {named: byte for byte, named in FORMS.items()}


@dataclass(frozen=True, slots=True)
class CloudEvidence:
    """What a metadata service gave.

    `rsa2048` and `dsa` are PKCS#7 in BER (not base64) with perhaps the document beside it; `rsa` is the
    document and 128 raw bytes of signature; `token` is a compact JWT; `attested` is PKCS#7 in DER.
    """

    provider: str
    form: Form
    document: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Return the payload."""
        byte = bytes((_BYTES[self.provider, self.form],))
        return length_prefixed(FORM, byte, self.document, self.signature)

    @classmethod
    def decode(cls, payload: bytes) -> "CloudEvidence":
        """Return what a payload shows.

        Raises:
            SchemaError: another form, a provider that is none, bytes left over, or too many of them.
        """
        if len(payload) > MAX_DOCUMENT_BYTES + MAX_SIGNATURE_BYTES + 64:
            message = "too large"
            raise WrongShape(message)
        form, byte, document, signature = read_length_prefixed(payload, 4)
        if form != FORM or len(byte) != 1 or byte[0] not in FORMS:
            message = "another form"
            raise WrongShape(message)
        provider, named = FORMS[byte[0]]
        if len(document) > MAX_DOCUMENT_BYTES or not 0 < len(signature) <= MAX_SIGNATURE_BYTES:
            message = "too large, or empty"
            raise WrongShape(message)
        if document and provider != "aws":
            message = "a document beside the signed one"
            raise WrongShape(message)
        return cls(provider, named, document, signature)
