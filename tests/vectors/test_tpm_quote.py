"""Quotes of real and software TPMs: right for their nonce and values, wrong for every other."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.tpm import recorded_area
from tests.support.vectors import vector
from watchword.handlers.attestors.tpm.attest import Quoted, read_attest
from watchword.handlers.attestors.tpm.quote import (
    BadQuote,
    Quote,
    Stale,
    check_certified,
    check_quote,
)
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b

pytestmark = pytest.mark.vectors

SWTPM_NONCE = bytes.fromhex("00112233445566778899aabbccddeeff" * 2)


@dataclass(frozen=True)
class Recording:
    """A quote with the key's area, the nonce it was asked with, and the values of the PCRs."""

    folder: str
    key: str
    message: str
    signature: str
    values: bytes
    nonce: bytes

    def check(self, **changes: bytes) -> Quote:
        """Check it, with something changed."""
        there = vector(self.folder)
        parts = {
            "raw": (there / self.message).read_bytes(),
            "signature": (there / self.signature).read_bytes(),
            "values": self.values,
            "nonce": self.nonce,
            "ak": recorded_area(self.folder, self.key),
            **changes,
        }
        return check_quote(
            parts["raw"],
            parts["signature"],
            parts["values"],
            read_public_2b(parts["ak"]),
            parts["nonce"],
        )


def _recordings() -> dict[str, Recording]:
    swtpm = bytes(32 * 8) + bytes.fromhex(
        "1C9ECEC90E28D2461650418635878A5C91E49F47586ECF75F2B0CBB94E897112"
    )
    found = {
        "swtpm-ecdsa": Recording("swtpm/tpm-a", "ak", "quote.msg", "quote.sig", swtpm, SWTPM_NONCE),
        "swtpm-rsassa": Recording(
            "swtpm/tpm-a", "akrsa", "quotersa.msg", "quotersa.sig", swtpm, SWTPM_NONCE
        ),
        "pytss": Recording("swtpm/pytss", "ak", "quote.msg", "quote.sig", swtpm, bytes(range(32))),
    }
    for bank in ("sha1", "sha256", "sha384"):
        folder = "tpm-quote/gce-cos-85-no-nonce"
        found[f"gce-{bank}"] = Recording(
            folder,
            "ak",
            f"quote-{bank}.msg",
            f"quote-{bank}.sig",
            _values(vector(folder), f"pcrs-{bank}.json", f"quote-{bank}.msg"),
            b"",
        )
    return found


def _values(folder: Path, name: str, message: str) -> bytes:
    values = json.loads((folder / name).read_text())
    quoted = read_attest((folder / message).read_bytes()).attested
    assert isinstance(quoted, Quoted)
    return b"".join(bytes.fromhex(values[str(n)]) for n in quoted.selections[0].pcrs)


NAMES = ["swtpm-ecdsa", "swtpm-rsassa", "pytss", "gce-sha1", "gce-sha256", "gce-sha384"]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_quote_holds(name: str) -> None:
    """The signature is the key's, and the values are the quoted ones."""
    recording = _recordings()[name]
    quote = recording.check()
    [bank] = quote.banks
    assert b"".join(bank.values.values()) == recording.values


@pytest.mark.case("B47")
@pytest.mark.parametrize("name", NAMES)
def test_recorded_quote_answers_no_other_challenge(name: str) -> None:
    """A quote that was recorded once must be worth nothing ever after."""
    with pytest.raises(Stale):
        _recordings()[name].check(nonce=b"\x01" * 32)


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_byte_is_refused(name: str) -> None:
    """Of the quote, of its signature, of the values and of the key."""
    recording = _recordings()[name]
    there = vector(recording.folder)
    parts = {
        "raw": ((there / recording.message).read_bytes(), 3),
        "signature": ((there / recording.signature).read_bytes(), 7),
        "values": (recording.values, 37),
        "ak": (recorded_area(recording.folder, recording.key), 5),
    }
    for part, (data, stride) in parts.items():
        for at in range(0, len(data), stride):
            if part == "ak" and not _matters(recording, at):
                continue
            changed = data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :]
            with pytest.raises(Malformed):
                recording.check(**{part: changed})


def test_swapped_keys_and_values_of_another_are_refused() -> None:
    """Two genuine recordings of one TPM make no third."""
    recordings = _recordings()
    with pytest.raises(BadQuote):
        recordings["swtpm-ecdsa"].check(ak=recorded_area("swtpm/tpm-a", "akrsa"))
    with pytest.raises(BadQuote):
        recordings["swtpm-ecdsa"].check(ak=recorded_area("swtpm/pytss", "ak"))
    with pytest.raises(BadQuote):
        recordings["gce-sha256"].check(values=recordings["gce-sha1"].values)


def test_certification_is_of_its_key_and_its_challenge() -> None:
    """A key statement is worth what it says of the CSR's own key."""
    there = vector("swtpm/tpm-a")
    area = recorded_area("swtpm/tpm-a", "devkey")
    ak = read_public_2b(recorded_area("swtpm/tpm-a", "ak"))
    raw = (there / "devkey.certify.attest").read_bytes()
    signature = (there / "devkey.certify.sig").read_bytes()
    key = read_public_2b(area).key
    nonce = read_attest(raw).extra_data

    check_certified(area, raw, signature, ak, nonce, key)
    with pytest.raises(Stale):
        check_certified(area, raw, signature, ak, b"another", key)
    with pytest.raises(BadQuote):
        check_certified(area, raw, signature, ak, nonce, ak.key)
    with pytest.raises(Malformed):
        check_certified(recorded_area("swtpm/tpm-a", "ak"), raw, signature, ak, nonce, ak.key)
    quote, quote_signature = (there / n for n in ("quote.msg", "quote.sig"))
    with pytest.raises(BadQuote):
        check_certified(
            area, quote.read_bytes(), quote_signature.read_bytes(), ak, SWTPM_NONCE, key
        )


def _matters(recording: Recording, at: int) -> bool:
    """Tell whether a byte of the area is the scheme's or the key's; the rest is the name's business."""
    area = recorded_area(recording.folder, recording.key)
    policy = int.from_bytes(area[10:12], "big")
    return at < 4 or at >= 12 + policy
