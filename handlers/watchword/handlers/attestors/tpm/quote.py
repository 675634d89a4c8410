"""Whether a quote is this attestation key's answer to this challenge, and over which values of PCRs."""

import hmac
from dataclasses import dataclass
from hashlib import sha256

from watchword.handlers.attestors.tpm.algorithms import digest, digest_size
from watchword.handlers.attestors.tpm.attest import (
    Attest,
    Certified,
    Clock,
    Quoted,
    holds,
    read_attest,
    read_signature,
)
from watchword.handlers.attestors.tpm.keys import check_node_key
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Public, PublicKey, read_public_2b


class BadQuote(Malformed):
    """A quote or certification is well formed, and does not hold."""


class Stale(BadQuote):
    """A quote or certification holds, and answers another challenge or is for another CSR."""


@dataclass(frozen=True, slots=True)
class PcrValues:
    """Quoted values of one bank: PCR → digest."""

    bank: int
    values: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote that holds: its PCRs by bank, the TPM's clock and its firmware's number."""

    banks: tuple[PcrValues, ...]
    clock: Clock
    firmware: int

    def of(self, bank: int) -> dict[int, bytes]:
        """Return the quoted values of a bank; none if it was not quoted."""
        return next((b.values for b in self.banks if b.bank == bank), dict[int, bytes]())


def qualifying(challenge: bytes, csr_sha256: bytes) -> bytes:
    """Return the 32 bytes that a quote is qualified with: for this challenge and this key of the machine."""
    return sha256(challenge + csr_sha256).digest()


def check_quote(
    raw: bytes, signature: bytes, values: bytes, ak: Public, qualified_by: bytes
) -> Quote:
    """Return what a quote says if it is the key's, fresh, and over these values (Part 3, 18.4).

    `raw` is TPMS_ATTEST, `signature` TPMT_SIGNATURE, `values` the selected PCRs' values in the order of the
    selection. `ak` has passed `keys.check_ak`.

    Raises:
        Stale: it is qualified by something else.
        BadQuote: it is no quote, the signature does not hold, or the values are not the quoted ones.
        Malformed: it cannot be read.
    """
    attest = _signed(raw, signature, ak, qualified_by)
    quoted = attest.attested
    if not isinstance(quoted, Quoted):
        message = "no quote"
        raise BadQuote(message)
    banks = _split(quoted, values)
    # The digest is made with the hash of the signing scheme (Part 3, 18.4.1).
    if ak.scheme is None or ak.scheme.hash is None:
        message = "a key without a scheme"
        raise BadQuote(message)
    if not hmac.compare_digest(digest(ak.scheme.hash, values), quoted.digest):
        message = "the values are not the quoted ones"
        raise BadQuote(message)
    return Quote(banks, attest.clock, attest.firmware)


def check_certified(
    area: bytes, raw: bytes, signature: bytes, ak: Public, qualified_by: bytes, key: object
) -> None:
    """Return only if the attestation key certified a key of its own TPM, and it is the CSR's key.

    `area` is the certified key's TPM2B_PUBLIC, `raw` and `signature` what TPM2_Certify gave (Part 3, 18.2).

    Raises:
        Stale: it is qualified by something else.
        BadQuote: no certification, of another key, or it does not hold.
        Malformed: it cannot be read, or is of a key that could have come from outside.
    """
    public = read_public_2b(area)
    check_node_key(public)
    attest = _signed(raw, signature, ak, qualified_by)
    certified = attest.attested
    own: PublicKey = public.key
    if not isinstance(certified, Certified) or certified.name != public.name or own != key:
        message = "another key is certified"
        raise BadQuote(message)


def _signed(raw: bytes, signature: bytes, ak: Public, qualified_by: bytes) -> Attest:
    attest = read_attest(raw)
    if not holds(read_signature(signature), raw, ak):
        message = "the signature is not the attestation key's"
        raise BadQuote(message)
    if not hmac.compare_digest(attest.extra_data, qualified_by):
        message = "an answer to another challenge"
        raise Stale(message)
    return attest


def _split(quoted: Quoted, values: bytes) -> tuple[PcrValues, ...]:
    """Return the values by bank and PCR; they must be exactly as many as were selected."""
    found: list[PcrValues] = []
    at = 0
    for selection in quoted.selections:
        size = digest_size(selection.bank)
        named: dict[int, bytes] = {}
        for pcr in selection.pcrs:
            named[pcr] = values[at : at + size]
            at += size
        found.append(PcrValues(selection.bank, named))
    if at != len(values) or len({b.bank for b in found}) != len(found):
        message = "other values than were selected"
        raise BadQuote(message)
    return tuple(found)
