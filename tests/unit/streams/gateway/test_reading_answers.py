"""Finding out which request an answer is for, whoever wrote it."""

import json

import pytest

from tests.support.gateway import make_answer
from watchword.schemas.canonical import b64url
from watchword.streams.gateway.process import answered_digest


def token(payload: bytes) -> bytes:
    """Return a token around a payload."""
    return b".".join((b"e30", b64url(payload), b"c2ln"))


def test_an_answer_names_the_digest_of_its_request() -> None:
    assert answered_digest(make_answer(b"request")) is not None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="a tombstone"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"junk", id="no token"),
        pytest.param(b"a.!.c", id="no base64"),
        pytest.param(token(b"junk"), id="no JSON"),
        pytest.param(token(b"[]"), id="no object"),
        pytest.param(token(b"{}"), id="no digest"),
        pytest.param(token(b'{"requestSha256":7}'), id="a number"),
        pytest.param(token(b'{"requestSha256":"00"}'), id="too short"),
        pytest.param(token(b'{"requestSha256":"' + b"x" * 64 + b'"}'), id="no hex"),
        pytest.param(token(b"[" * 100_000), id="nesting"),
        pytest.param(token(b"\xff\xfe"), id="no UTF-8"),
    ],
)
def test_what_is_no_answer_is_passed_over(value: bytes | None) -> None:
    """A writer of the topic must not be able to stop everybody who reads it."""
    assert answered_digest(value) is None


def test_the_digest_of_a_sealed_answer_stands_in_clear() -> None:
    payload = {"issuedAt": "x", "requestSha256": "ab" * 32, "sealed": "AAAA"}

    assert answered_digest(token(json.dumps(payload).encode())) == b"\xab" * 32
