"""Public areas, attestations and signatures that real and software TPMs have made."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.support.tpm import recorded_area
from tests.support.vectors import vector
from watchword.handlers.attestors.tpm.attest import (
    Certified,
    Quoted,
    holds,
    read_attest,
    read_signature,
)
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Public, read_public_2b

pytestmark = pytest.mark.vectors

QUOTES = [
    ("swtpm/tpm-a", "ak", "quote.msg", "quote.sig"),
    ("swtpm/tpm-a", "akrsa", "quotersa.msg", "quotersa.sig"),
    ("swtpm/pytss", "ak", "quote.msg", "quote.sig"),
    ("tpm-quote/keylime-emulator", "ak", "quote.out", "quotesig.out"),
    ("tpm-quote/gce-cos-85-no-nonce", "ak", "quote-sha1.msg", "quote-sha1.sig"),
    ("tpm-quote/gce-cos-85-no-nonce", "ak", "quote-sha256.msg", "quote-sha256.sig"),
    ("tpm-quote/gce-cos-85-no-nonce", "ak", "quote-sha384.msg", "quote-sha384.sig"),
]
AREAS = [
    ("swtpm/tpm-a", "ek"),
    ("swtpm/tpm-a", "ak"),
    ("swtpm/tpm-a", "akrsa"),
    ("swtpm/tpm-a", "devkey"),
    ("swtpm/pytss", "ek"),
    ("swtpm/pytss", "ak"),
    ("tpm-quote/keylime-emulator", "ak"),
    ("tpm-quote/keylime-emulator", "ek"),
    ("tpm-quote/goattest-ak-creation-ecc", "ak"),
]


def _pem(folder: Path, key: str) -> Path:
    return next(p for name in (f"{key}.pem", f"{key}pub.pem") if (p := folder / name).exists())


@pytest.mark.parametrize(("folder", "key"), AREAS)
def test_public_area_is_the_key_and_the_name_that_its_tpm_says(folder: str, key: str) -> None:
    """A name of ours that differs from the TPM's would make a credential that no TPM opens."""
    public = read_public_2b(recorded_area(folder, key))
    there = vector(folder)

    assert public.key == load_pem_public_key(_pem(there, key).read_bytes())
    if (there / f"{key}.name").exists():
        assert public.name == (there / f"{key}.name").read_bytes()


@pytest.mark.parametrize(("folder", "key", "message", "signature"), QUOTES)
def test_quotes_hold_for_their_key_alone(
    folder: str, key: str, message: str, signature: str
) -> None:
    """A quote is worth its signature; one changed byte of it, or another key, ends it."""
    there = vector(folder)
    ak = read_public_2b(recorded_area(folder, key))
    raw = (there / message).read_bytes()
    signed = read_signature((there / signature).read_bytes())

    assert isinstance(read_attest(raw).attested, Quoted)
    assert holds(signed, raw, ak)
    assert not holds(signed, raw, read_public_2b(recorded_area("swtpm/tpm-a", "devkey")))
    for at in range(0, len(raw), 7):
        assert not holds(signed, _flipped(raw, at), ak)


def test_certification_names_the_certified_key() -> None:
    """TPM2_Certify by the AK is what makes a node's key known to be in the TPM."""
    there = vector("swtpm/tpm-a")
    attest = read_attest((there / "devkey.certify.attest").read_bytes())
    signature = read_signature((there / "devkey.certify.sig").read_bytes())

    assert isinstance(attest.attested, Certified)
    assert attest.attested.name == (there / "devkey.name").read_bytes()
    assert holds(signature, attest.raw, read_public_2b(recorded_area("swtpm/tpm-a", "ak")))


def test_every_cut_and_every_changed_byte_is_read_or_refused() -> None:
    """Evidence is hostile: a parser that raises anything else stops a worker."""
    folder = vector("swtpm/tpm-a")
    readers = {
        recorded_area("swtpm/tpm-a", "ek"): read_public_2b,
        recorded_area("swtpm/tpm-a", "ak"): read_public_2b,
        (folder / "quote.msg").read_bytes(): read_attest,
        (folder / "devkey.certify.attest").read_bytes(): read_attest,
        (folder / "quote.sig").read_bytes(): read_signature,
        (folder / "quotersa.sig").read_bytes(): read_signature,
    }
    for data, read in readers.items():
        for size in range(len(data)):
            with pytest.raises(Malformed):
                read(data[:size])
        with pytest.raises(Malformed):
            read(data + b"\0")
        for at in range(len(data)):
            _total(read, _flipped(data, at))


def test_changed_public_area_is_another_name() -> None:
    """The name covers every byte, so a credential for one area opens for no other."""
    data = recorded_area("swtpm/tpm-a", "ak")
    name = read_public_2b(data).name
    for at in range(len(data)):
        changed = _total(read_public_2b, _flipped(data, at))
        assert not isinstance(changed, Public) or changed.name != name


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :]


def _total(read: object, data: bytes) -> object:
    try:
        return read(data)  # type: ignore[operator] # one of the readers above
    except Malformed:
        return None
