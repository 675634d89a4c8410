"""What `tpm` shows and is asked: public areas and certificates, and in the second round what the TPM made.

Evidence is six length-prefixed parts: the form `tpm/1`, the endorsement key (TPM2B_PUBLIC), its certificate
(as the NV index has it; may be empty), intermediates (length-prefixed among themselves, at most four), the
attestation key (TPM2B_PUBLIC), and the answer, empty in the first round: secret, quote (TPMS_ATTEST), its
signature (TPMT_SIGNATURE), the PCRs' values, event log, and for a node key in the TPM its TPM2B_PUBLIC, the
certification and its signature (all three or none).

A challenge is five: the form, TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET, the accepted banks (by name, separated
by commas, the best first) and four bytes with a bit for each PCR to be quoted (the lowest of the first is 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import WrongShape

FORM = b"tpm/1"
MAX_AREA_BYTES = 1024
MAX_CERTIFICATE_BYTES = 8 * 1024
MAX_INTERMEDIATES = 4
MAX_SIGNED_BYTES = 1024
MAX_VALUES_BYTES = 24 * 64
MAX_LOG_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = MAX_LOG_BYTES + (MAX_INTERMEDIATES + 2) * MAX_CERTIFICATE_BYTES
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Certification:
    """The node's key, and what TPM2_Certify said of it."""

    area: bytes
    attest: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class TpmAnswer:
    """What the TPM made of a challenge. `log` is empty where the firmware gives none."""

    secret: bytes
    quote: bytes
    signature: bytes
    values: bytes
    log: bytes = b""
    certification: Certification | None = None

    def encode(self) -> bytes:
        """Return the part of the evidence."""
        said = self.certification or Certification(b"", b"", b"")
        return length_prefixed(
            self.secret, self.quote, self.signature, self.values, self.log,
            said.area, said.attest, said.signature,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> "TpmAnswer":
        """Return an answer within its bounds; raises `SchemaError`."""
        secret, quote, signature, values, log, *said = read_length_prefixed(data, 8)
        _bound((quote, signature), MAX_SIGNED_BYTES)
        _bound((values,), MAX_VALUES_BYTES)
        if len(secret) != _SECRET_BYTES or len(log) > MAX_LOG_BYTES:
            message = "a secret or a log of another size"
            raise WrongShape(message)
        certification = None
        if any(said):
            _bound(said, MAX_SIGNED_BYTES)
            certification = Certification(*said)
        return cls(secret, quote, signature, values, log, certification)


@dataclass(frozen=True, slots=True)
class TpmEvidence:
    """Keys, certificates and perhaps an answer."""

    ek: bytes
    certificate: bytes
    intermediates: tuple[bytes, ...]
    ak: bytes
    answer: TpmAnswer | None = None

    def encode(self) -> bytes:
        """Return the payload."""
        chain = length_prefixed(*self.intermediates)
        answer = b"" if self.answer is None else self.answer.encode()
        return length_prefixed(FORM, self.ek, self.certificate, chain, self.ak, answer)

    @classmethod
    def decode(cls, payload: bytes) -> "TpmEvidence":
        """Return what a payload shows; every bound is checked before anything is parsed.

        Raises:
            SchemaError: it has another form, or a part that is missing or too large.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            message = "too large"
            raise WrongShape(message)
        form, ek, certificate, chain, ak, answer = read_length_prefixed(payload, 6)
        if form != FORM:
            message = "another form"
            raise WrongShape(message)
        _bound((ek, ak), MAX_AREA_BYTES)
        intermediates = _each(chain)
        _bound(intermediates, MAX_CERTIFICATE_BYTES)
        if len(certificate) > MAX_CERTIFICATE_BYTES:
            message = "a certificate is too large"
            raise WrongShape(message)
        return cls(ek, certificate, intermediates, ak, TpmAnswer.decode(answer) if answer else None)


@dataclass(frozen=True, slots=True)
class TpmChallenge:
    """A credential to activate, and what to quote."""

    id_object: bytes
    encrypted_secret: bytes
    banks: tuple[str, ...]
    pcrs: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the challenge; what is quoted is qualified by these bytes."""
        bits = sum(1 << pcr for pcr in self.pcrs).to_bytes(4, "little")
        banks = ",".join(self.banks).encode()
        return length_prefixed(FORM, self.id_object, self.encrypted_secret, banks, bits)

    @classmethod
    def decode(cls, data: bytes) -> "TpmChallenge":
        """Return what is asked; raises `SchemaError`."""
        form, id_object, encrypted_secret, banks, bits = read_length_prefixed(data, 5)
        if form != FORM or len(bits) != 4 or not banks.isascii():  # noqa: PLR2004 - see the form
            message = "another form"
            raise WrongShape(message)
        mask = int.from_bytes(bits, "little")
        pcrs = tuple(n for n in range(32) if mask >> n & 1)
        return cls(id_object, encrypted_secret, tuple(banks.decode().split(",")), pcrs)


def _bound(parts: Sequence[bytes], limit: int) -> None:
    if any(not 0 < len(part) <= limit for part in parts):
        message = "a part is missing or too large"
        raise WrongShape(message)


def _each(chain: bytes) -> tuple[bytes, ...]:
    """Return the intermediates; read by hand because their number is not known."""
    found: list[bytes] = []
    at = 0
    while at < len(chain):
        end = at + 4 + int.from_bytes(chain[at : at + 4], "big")
        if len(found) == MAX_INTERMEDIATES or end > len(chain):
            message = "too many intermediates, or a length beyond the data"
            raise WrongShape(message)
        found.append(chain[at + 4 : end])
        at = end
    return tuple(found)
