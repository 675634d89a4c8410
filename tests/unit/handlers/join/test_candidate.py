"""What is read of a request before anybody judges it; nothing is raised, whatever the bytes are."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.joins import Machine, keys
from watchword.handlers.join.candidate import Candidate, NotJudged
from watchword.handlers.join.records import Incoming
from watchword.handlers.rows import INVALID
from watchword.schemas.canonical import b64, canonical, parse_canonical
from watchword.schemas.requests import MAX_REQUEST_BYTES

MACHINE = Machine(keys()[1])
GOOD = MACHINE.request(b"payload")


def read(value: bytes | None) -> Candidate:
    return Candidate(Incoming(value, "join.requests", 0, 1))


def changed(**changes: object) -> bytes:
    return canonical({**parse_canonical(GOOD), **changes})


def test_good_request_is_read() -> None:
    found = read(GOOD)
    assert found.problem is None
    assert found.digest == sha256(GOOD).digest()
    assert found.csr is not None
    assert found.question.csr_sha256 == sha256(MACHINE.csr).digest() == found.csr.sha256
    assert found.attestor == "join-token"
    assert found.question.reply_key is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="a tombstone"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(GOOD + b"\n", id="one byte more"),
        pytest.param(GOOD[:-1], id="one byte less"),
        pytest.param(GOOD.replace(b",", b", "), id="indented"),
        pytest.param(GOOD[:-1] + b',"version":1}', id="a key twice"),
        pytest.param(changed(surplus=None), id="an unknown field"),
        pytest.param(changed(attestor="a\0b"), id="a NUL"),
        pytest.param(changed(attestor="A"), id="no label"),
        pytest.param(changed(role="king"), id="an unknown role"),
        pytest.param(changed(kind="leave"), id="an unknown kind"),
        pytest.param(changed(csr=b64(MACHINE.csr) + "\n"), id="csr in other base64"),
        pytest.param(changed(sealed="AB=="), id="sealed in other base64"),
        pytest.param(changed(sealed=5), id="sealed is a number"),
        pytest.param(changed(state="AB=="), id="state in other base64"),
        pytest.param(changed(replyKey="A" * 43 + "!"), id="reply key is no base64"),
        pytest.param(GOOD.replace(b'"state":null', b'"state":"\\ud800"'), id="a lone surrogate"),
        pytest.param(b" " * (MAX_REQUEST_BYTES + 1), id="too large"),
    ],
)
def test_what_is_not_a_request_goes_to_the_dead_letters(value: bytes | None) -> None:
    """Its bytes are kept for whoever has to find out; the answer has nothing but the digest."""
    found = read(value)
    assert found.problem == NotJudged(INVALID, "undecodable", dead_letter=True)
    assert found.csr is None
    assert found.question.request_sha256 == sha256(value or b"").digest()


def test_csr_that_is_none_is_told_apart() -> None:
    found = read(changed(csr=b64(b"no csr at all")))
    assert found.problem == NotJudged(INVALID, "csr-malformed")
    assert found.question.csr_sha256 == sha256(b"no csr at all").digest()


def test_kinds_of_requests_are_told_apart() -> None:
    asked = read(changed(kind="commands"))
    assert (asked.problem, asked.fetches, asked.renews) == (None, True, False)
    unheard = NotJudged(INVALID, "undecodable", dead_letter=True)
    assert read(changed(kind="unheard")).problem == unheard


@given(st.binary(max_size=300))
def test_no_bytes_raise(value: bytes) -> None:
    """One record that raises would be delivered again, and raise again, for ever."""
    assert read(value).problem is not None


def test_attempt_leaves_nothing_to_the_next() -> None:
    found = read(GOOD)
    found.judgement = NotJudged(INVALID, "undecodable")
    found.reads.add(("token", "0123456789abcdef"))
    found.again()
    assert found.judgement is None
    assert found.reads == set()
    assert found.admitted_before is None
