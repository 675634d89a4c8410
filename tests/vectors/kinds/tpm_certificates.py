"""Certificates of endorsement keys, and the CAs of their vendors."""

from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.vectors.judging import (
    Entry,
    Mismatch,
    Outcome,
    Result,
    accepts,
    refuses,
)
from watchword.handlers.attestors.tpm.certificates import in_file, read_certificate, unwrap
from watchword.handlers.attestors.tpm.endorsement import (
    Anchors,
    check_endorsement,
    check_path,
    load_anchors,
)
from watchword.handlers.attestors.tpm.reader import Malformed

NOW = datetime(2026, 11, 29, 22, tzinfo=UTC)
"""The day for which the manifest's verdicts are."""
_CHAIN = ".chain.pem"
_OTHERS_KEY = SimpleNamespace(key=object())
"""In the place of another TPM's key."""


def endorsements(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge each certificate with the CAs of all vendors, and with those alone that are beside it."""
    vendors = load_anchors(entries[0].root / "tpm-ek-ca")
    by_stem = {e.name.removesuffix(_CHAIN): e for e in entries if e.name.endswith(_CHAIN)}
    for entry in entries:
        if entry.expect == "anchor":
            leaf = entry.root / entry.path.replace(_CHAIN, ".der")
            yield _leads(entry, leaf)
            continue
        stem = Path(entry.name).stem.removesuffix("-stripped")
        yield from _judged(entry, vendors, by_stem.get(stem))


def authorities(entries: Sequence[Entry]) -> Iterator[Result]:
    """Load each vendor's file as an operator would; one that cannot be used spoils nothing."""
    for entry in entries:
        usable = 0
        for certificate in in_file(entry.data()):
            try:
                usable += read_certificate(certificate).is_authority
            except Malformed:
                continue
        outcome = Outcome.RIGHT if usable else Outcome.WRONG
        yield Result(entry, outcome, "", "" if usable else "no CA of it can be used")


def _judged(entry: Entry, vendors: Anchors, chain: Entry | None) -> Iterator[Result]:
    data = _der(entry.data())
    if "not an EK" in entry.verdict:
        # Certified by the vendor, and a key to sign with: the path is good, and no endorsement comes of it.
        yield accepts(entry, lambda data: _path(data, vendors), data, case="path")
        yield refuses(entry, lambda data: _endorse(data, vendors), data, case="as an endorsement")
        return
    yield accepts(entry, lambda data: _endorse(data, vendors), data)
    others = Anchors.of(_without(vendors, chain))
    yield refuses(entry, lambda data: _endorse(data, others), data, case="another vendor's CAs")
    yield refuses(
        entry,
        lambda data: check_endorsement(data, [], _OTHERS_KEY, vendors, NOW),  # type: ignore[arg-type] # no key
        data,
        case="another key",
    )


def _leads(entry: Entry, leaf: Path) -> Result:
    data = leaf.read_bytes()

    def take(chain: bytes) -> None:
        anchors = Anchors.of([read_certificate(der) for der in in_file(chain)])
        _path(data, anchors)

    # An anchor is trusted as it is: what is not its key or its name is nobody's business.
    return accepts(entry, take, flips=())


def _without(vendors: Anchors, chain: Entry | None) -> list[Any]:
    names = {read_certificate(der).subject for der in in_file(chain.data())} if chain else set()
    return [c for same in vendors.by_subject.values() for c in same if c.subject not in names]


def _path(data: bytes, anchors: Anchors) -> None:
    check_path(read_certificate(unwrap(data)), [], anchors, NOW)


def _endorse(data: bytes, anchors: Anchors) -> None:
    """Judge a certificate for the key that it certifies itself: no public area is recorded."""
    key = SimpleNamespace(key=read_certificate(unwrap(data)).key)
    check_endorsement(data, [], key, anchors, NOW)  # type: ignore[arg-type] # see above


def _der(data: bytes) -> bytes:
    if b"-----BEGIN" not in data:
        return data
    try:
        return a2b_base64(data.split(b"CERTIFICATE-----")[1].split(b"-----END")[0])
    except IndexError:
        raise Mismatch from None
