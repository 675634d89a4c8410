"""What is no join request, in every way that a gateway can tell, and what it must answer."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.load.wire import CUT, post

_LIMIT = 512 * 1024
"""Greatest body, as the API's description has it."""
_CHUNK = 8 * 1024

UNDECODABLE, TOO_LARGE, MALFORMED = "undecodable", "too-large", "malformed"


@dataclass(frozen=True, slots=True)
class Bases:
    """Good requests, from which bad ones are made, and requests with bad CSRs, by what is bad in them."""

    good: Sequence[bytes] = field(repr=False)
    bad_csr: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Malformation:
    """One way of being wrong."""

    make: Callable[[bytes, Bases], bytes]
    """Makes the bytes of a whole HTTP request, from a good request's."""
    answers: frozenset[str]
    """The problems, one of which is answered."""


def _body(change: Callable[[bytes], bytes], *answers: str) -> Malformation:
    return Malformation(lambda good, _: post(change(good)), frozenset(answers or (UNDECODABLE,)))


def _csr(reason: str) -> Malformation:
    return Malformation(lambda _, bases: post(bases.bad_csr[reason]), frozenset((reason,)))


def _http(make: Callable[[bytes], bytes], *answers: str) -> Malformation:
    return Malformation(lambda good, _: make(good), frozenset(answers))


def chunked(pieces: int, size: int) -> bytes:
    """Return so many pieces of a body, without an end."""
    return (f"{size:x}\r\n".encode() + b"x" * size + b"\r\n") * pieces


def _unbounded(pieces: bytes) -> bytes:
    head = "POST /v1/joins HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + pieces


def _extra(good: bytes) -> bytes:
    return json.dumps(
        {**json.loads(good), "zeal": 1}, sort_keys=True, separators=(",", ":")
    ).encode()


MALFORMATIONS: Mapping[str, Malformation] = {
    "no JSON": _body(lambda _: os.urandom(60)),
    "nothing": _body(lambda _: b""),
    "another version": _body(lambda good: good.replace(b'"version":1', b'"version":2')),
    "unknown field": _body(_extra),
    "renamed field": _body(lambda good: good.replace(b'"kind"', b'"kinD"')),
    "key twice": _body(lambda good: good[:-1] + b',"version":1}'),
    "white space": _body(lambda good: good.replace(b":", b": ", 1)),
    "40,000 fields": _body(lambda _: b"{" + b'"a":1,' * 40_000 + b'"a":1}'),
    "nested": _body(lambda _: b"[" * 50_000),
    "CSR that is none": _csr("csr-malformed"),
    "CSR of another key": _csr("csr-signature"),
    "weak key": _csr("weak-key"),
    "length beyond the limit": _http(lambda _: post(b"", declared=_LIMIT + 1), TOO_LARGE, CUT),
    "body beyond the limit": _http(lambda _: post(bytes(_LIMIT + 1)), TOO_LARGE, CUT),
    "chunks beyond the limit": _http(
        lambda _: _unbounded(chunked(_LIMIT // _CHUNK + 2, _CHUNK)), TOO_LARGE, CUT
    ),
    "crumbs": _http(lambda _: _unbounded(chunked(2000, 1)), MALFORMED, CUT),
    "compressed": _http(lambda good: post(good, fields=["Content-Encoding: gzip"]), "media-type"),
    "100 headers": _http(
        lambda good: post(good, fields=[f"X-{n}: {n}" for n in range(100)]), "headers-too-large"
    ),
    "header bomb": _http(
        lambda good: post(good, fields=["X: " + "x" * 200] * 1000), MALFORMED, CUT
    ),
    "two lengths": _http(lambda good: post(good, fields=["Content-Length: 7"]), MALFORMED),
    "no HTTP": _http(lambda _: b"\x16\x03\x01" + os.urandom(40) + b"\r\n\r\n", MALFORMED),
    "no such method": _http(
        lambda _: b"PUT /v1/joins HTTP/1.1\r\nHost: g\r\n\r\n", "method-not-allowed"
    ),
    "no such place": _http(
        lambda _: b"GET /v1/joins/../../etc HTTP/1.1\r\nHost: g\r\n\r\n", "not-found"
    ),
}
"""Large ones are rarer: see `RARE`."""

RARE = frozenset(
    ("body beyond the limit", "chunks beyond the limit", "40,000 fields", "crumbs", "header bomb")
)
"""Come once where the others come ten times: they cost whoever sends them as much as whoever gets them."""

ALWAYS = frozenset(("busy", "too-many-requests", "unavailable"))
"""What may be answered to anybody who comes too often, good or bad, if it says when to come again."""
