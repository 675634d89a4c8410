"""The statement that a node's key is in the TPM of an attestation key, and its proof when the key is a new one.

`urn:bc:tpm-ak:<SHA-256 of the AK's name>` in a node's certificate says: the key of this certificate is held by the
TPM that holds this attestation key. At a join the challenge's credential has shown that the TPM holds it.
At renewal that is remembered, by the name in the statement, and only the new key has to be certified.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from watchword.handlers.attestors.tpm.evidence import (
    MAX_AREA_BYTES,
    MAX_SIGNED_BYTES,
    Certification,
)
from watchword.handlers.attestors.tpm.keys import check_ak
from watchword.handlers.attestors.tpm.quote import BadQuote, check_certified
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Public, read_public_2b
from watchword.handlers.errors import WatchwordError
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import SchemaError, WrongShape

FORM = b"tpm-key/1"
_URI = re.compile(r"urn:bc:tpm-ak:([0-9a-f]{64})")


class StatementUnproved(WatchwordError):
    """Nothing shows that the key is in the TPM that the statement names."""


@dataclass(frozen=True, slots=True)
class KeyProof:
    """An attestation key (TPM2B_PUBLIC), and what it certifies of another key of its TPM."""

    ak: bytes
    said: Certification

    def encode(self) -> bytes:
        """Return the form `tpm-key/1`: length-prefixed form, AK, certified area, TPMS_ATTEST, TPMT_SIGNATURE."""
        return length_prefixed(FORM, self.ak, self.said.area, self.said.attest, self.said.signature)

    @classmethod
    def decode(cls, data: bytes) -> "KeyProof":
        """Return a proof within its bounds; raises `SchemaError`."""
        form, ak, *said = read_length_prefixed(data, 5)
        if form != FORM or any(not 0 < len(part) <= MAX_SIGNED_BYTES for part in said):
            message = "another form, or a part that is missing or too large"
            raise WrongShape(message)
        if not 0 < len(ak) <= MAX_AREA_BYTES:
            message = "an attestation key of another size"
            raise WrongShape(message)
        return cls(ak, Certification(*said))


def statement_of(ak: Public) -> str:
    """Return what may be said of a key that this attestation key has certified."""
    return f"urn:bc:tpm-ak:{sha256(ak.name).hexdigest()}"


def qualifying_text(text: bytes) -> bytes:
    """Return the 32 bytes that a certification for a signed text, such as a renewal's, is qualified with."""
    return sha256(text).digest()


def check_statement(uri: str, proof: bytes, text: bytes, key: object) -> None:
    """Return only if the TPM of this statement certified this key, for this text.

    `proof` is a `KeyProof` as a machine sent it, `text` what the request is signed over (it names the CSR, and
    is fresh), `key` the public key of the CSR.

    Raises:
        StatementUnproved: anything is wrong.
    """
    # 1. The statement and the proof have their forms.
    # 2. The attestation key is fit for its part, and the one that the statement names (TPM 2.0 Library, Part 1, 16).
    # 3. It certified the CSR's key, qualified by this text; the key never left its TPM (Part 3, 18.2).

    # Step 1
    named = _URI.fullmatch(uri)
    if named is None:
        message = "no statement of a TPM's key"
        raise StatementUnproved(message)
    try:
        shown = KeyProof.decode(proof)
        ak = read_public_2b(shown.ak)

        # Step 2
        check_ak(ak)
        if statement_of(ak) != uri:
            message = "another attestation key than the statement's"
            raise BadQuote(message)

        # Step 3
        said = shown.said
        check_certified(said.area, said.attest, said.signature, ak, qualifying_text(text), key)
    except (SchemaError, Malformed) as error:
        raise StatementUnproved(type(error).__name__) from None
