"""Odd and hostile certificates, as machines may show them: each is its own CA, so that nothing else refuses it."""

import re
from binascii import a2b_base64
from collections.abc import Iterator, Sequence

from tests.vectors.judging import Entry, Result, accepts, either, refuses, same
from watchword.handlers.attestors.tpm.certificates import read_certificate
from watchword.handlers.attestors.x509pop.chain import load, verify_path

_LATE = re.compile("must be read as 20xx")


def certificates(entries: Sequence[Entry]) -> Iterator[Result]:
    """Read what has to be readable, and lead no other to a trusted CA, in the middle of its life."""
    for entry in entries:
        data = _der(entry.data())
        if entry.expect == "refuse":
            yield refuses(entry, _lead, data)
        elif entry.expect == "either":
            yield either(entry, _lead, data)
        else:
            yield accepts(entry, load, data, flips=())
            yield from _finer(entry, data)


def _finer(entry: Entry, data: bytes) -> Iterator[Result]:
    """Judge what a verdict says beyond parsing."""
    if _LATE.search(entry.verdict):
        yield accepts(
            entry,
            lambda data: same(load(data).not_valid_before_utc.year // 100, 20),
            data,
            flips=(),
            case="20xx",
        )
    if "REFUSE as issuer of another CA" in entry.verdict:
        yield accepts(
            entry,
            lambda data: same(read_certificate(data).path_length, 0),
            data,
            flips=(),
            case="path length",
        )


def _lead(data: bytes) -> None:
    certificate = load(data)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    verify_path(certificate, [], (certificate,), begin + (end - begin) / 2)


def _der(data: bytes) -> bytes:
    if b"-----BEGIN CERTIFICATE" not in data:
        return data
    return a2b_base64(data.split(b"CERTIFICATE-----")[1].split(b"-----END")[0])
