"""How others write down the values of PCRs, and what a TPM says of how it has made a key."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.vectors.judging import Entry
from watchword.handlers.attestors.tpm.algorithms import BANKS, digest
from watchword.handlers.attestors.tpm.attest import GENERATED, Quoted
from watchword.handlers.attestors.tpm.eventlog import read_event_log
from watchword.handlers.attestors.tpm.quote import check_quote
from watchword.handlers.attestors.tpm.reader import Malformed, Reader, sized
from watchword.handlers.attestors.tpm.structures import Public, read_public_2b

_SELECTION_BYTES = 4 + 16 * 8
_LIST_BYTES = 4 + 8 * (2 + 64)
_ATTEST_CREATION = 0x801A
_MAX_BYTES = 1024


@dataclass(frozen=True)
class StoredValues:
    """A file with the values that a quote is over."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @classmethod
    def beside(cls, message: Path) -> "StoredValues":
        """Return the values of a quote: in a file of its own, of its bank, or of the same TPM's other folder."""
        folder, stem = message.parent, message.stem
        names = (f"{stem}.pcrs", f"{stem}pcr.out", f"{stem.replace('quote', 'pcrs')}.json", "pcrs.json", "pcrs-sha256.json")  # fmt: skip
        for name in names:
            if (folder / name).exists():
                return cls(folder / name)
        return cls(next(iter(sorted(folder.parent.glob(f"*/{stem}.pcrs")))))

    def of(self, quoted: Quoted) -> bytes:
        """Return the values of a quote's selections, in their order."""
        data = self.path.read_bytes()
        if self.path.suffix != ".json":
            return _serialized(data)
        said = json.loads(data)
        found = b""
        for selection in quoted.selections:
            bank = said.get(BANKS[selection.bank], said)
            found += b"".join(bytes.fromhex(bank[str(pcr)]) for pcr in selection.pcrs)
        return found


def _serialized(data: bytes) -> bytes:
    """Return what tpm2-tools stores as `serialized`: C structures of a selection and of lists of digests."""
    count = int.from_bytes(data[_SELECTION_BYTES : _SELECTION_BYTES + 4], "little")
    found = b""
    for number in range(count):
        start = _SELECTION_BYTES + 4 + number * _LIST_BYTES
        for nth in range(int.from_bytes(data[start : start + 4], "little")):
            at = start + 4 + nth * 66
            size = int.from_bytes(data[at : at + 2], "little")
            found += data[at + 2 : at + 2 + size]
    return found


@dataclass(frozen=True)
class Creation:
    """TPMS_CREATION_INFO (TPM 2.0 Library, Part 2, 10.12.7): an object's name, and the digest of how it was made."""

    name: bytes
    digest: bytes


def read_creation(raw: bytes) -> Creation:
    """Return what a TPMS_ATTEST of TPM2_CertifyCreation says; raises `Malformed`."""
    reader = Reader(raw)
    if (reader.u32(), reader.u16()) != (GENERATED, _ATTEST_CREATION):
        message = "no attestation of a creation"
        raise Malformed(message)
    reader.sized(_MAX_BYTES)
    reader.sized(_MAX_BYTES)
    reader.take(8 + 4 + 4 + 1 + 8)
    found = Creation(reader.sized(_MAX_BYTES), reader.sized(_MAX_BYTES))
    reader.end()
    return found


def creation_digest(public: Public, data: bytes) -> bytes:
    """Return the digest of TPMS_CREATION_DATA, which some write as TPM2B."""
    whole = data[:2] == (len(data) - 2).to_bytes(2, "big")
    return digest(public.name_hash, data[2:] if whole else data)


@dataclass(frozen=True)
class Recorded:
    """A quote with what is beside it."""

    message: bytes
    signature: bytes
    values: bytes
    key: Public
    nonce: bytes

    def check(self, **changes: bytes) -> None:
        """Check the quote, with parts of it changed."""
        parts = {"message": self.message, "signature": self.signature, "values": self.values}
        parts |= {"nonce": self.nonce, **changes}
        check_quote(parts["message"], parts["signature"], parts["values"], self.key, parts["nonce"])


def of_the_log(entry: Entry, expected: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the values of PCRs that the log has events of: an operating system extends others later."""
    log = read_event_log(entry.data())
    touched = {str(event.pcr) for event in log.events}
    return {
        bank: {pcr: value.lower() for pcr, value in values.items() if pcr in touched}
        for bank, values in expected.items()
    }


def is_message(path: Path) -> bool:
    """Tell whether a file is a quote's TPMS_ATTEST."""
    return path.name.startswith("quote") and (path.suffix == ".msg" or path.name == "quote.out")


def whole(data: bytes) -> bytes:
    """Return a public area as TPM2B_PUBLIC; some are recorded without their size."""
    return data if data[:2] == (len(data) - 2).to_bytes(2, "big") else sized(data)


def area_of(data: bytes) -> Public:
    """Return what a recorded public area holds."""
    return read_public_2b(whole(data))
