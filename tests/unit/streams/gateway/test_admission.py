"""What may go to Kafka."""

import contextlib
import json
import time
from collections.abc import Callable
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gateway import Key, make_csr, make_request
from watchword.schemas.canonical import b64, canonical
from watchword.schemas.requests import MAX_REQUEST_BYTES, JoinRequest
from watchword.streams.gateway.admission import admit
from watchword.streams.gateway.problems import Problem, Rejected

GOOD = make_request()


def changed(**fields: object) -> bytes:
    """Return the good request with other fields."""
    return canonical({**json.loads(GOOD), **fields})


def problem_of(body: bytes) -> Problem:
    """Return why a body is rejected."""
    with pytest.raises(Rejected) as rejected:
        admit(body)
    return rejected.value.problem


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate,
        lambda: rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-384", "Ed25519", "RSA-2048"],
)
def test_a_good_request_passes_with_the_digests_that_name_it(make: Callable[[], Key]) -> None:
    """The key on the topic and the polling address are made of these."""
    csr = make_csr(make())
    body = make_request(csr)

    admitted = admit(body)

    assert admitted.body is body
    assert admitted.digest == sha256(body).digest()
    assert admitted.csr_sha256 == sha256(csr).digest()


@given(
    kind=st.sampled_from(("join", "renew", "commands")),
    attestor=st.from_regex(r"\A(?:|[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?)\Z"),
    role=st.sampled_from(("node", "site", "ramdisk")),
    kid=st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    sealed=st.binary(min_size=3, max_size=100),
    state=st.none() | st.binary(min_size=3, max_size=100),
    reply_key=st.none() | st.binary(min_size=32, max_size=32),
)
def test_whatever_the_schema_allows_passes(
    kind: str,
    attestor: str,
    role: str,
    kid: str,
    sealed: bytes,
    state: bytes | None,
    reply_key: bytes | None,
) -> None:
    """The count of braces and commas must not know less than the schema."""
    body = changed(
        kind=kind,
        attestor=attestor,
        role=role,
        encryptionKeyId=kid,
        sealed=b64(sealed),
        state=None if state is None else b64(state),
        replyKey=None if reply_key is None else b64(reply_key),
    )

    assert JoinRequest.read(body).kind == kind
    assert admit(body).body == body


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"junk", id="no JSON"),
        pytest.param(b"null", id="no object"),
        pytest.param(GOOD + b"\n", id="a line break more"),
        pytest.param(json.dumps(json.loads(GOOD)).encode(), id="white space"),
        pytest.param(b"\xef\xbb\xbf" + GOOD, id="a byte order mark"),
        pytest.param(GOOD.replace(b'"kind"', b'"\\u006bind"'), id="an escape"),
        pytest.param(GOOD.replace(b'"version":1', b'"version":1.0'), id="a float"),
        pytest.param(GOOD.replace(b'{"a', b'{"attestor":"x","a'), id="a field twice"),
        pytest.param(GOOD.replace(b'"role":"node"', b'"role":"king"'), id="an unknown role"),
        pytest.param(changed(extra="field"), id="an unknown field"),
        pytest.param(changed(sealed="AAA"), id="base64 without padding"),
        pytest.param(changed(sealed="AAAB\n"), id="base64 with a line break"),
        pytest.param(changed(sealed="AAB="), id="base64 with loose bits"),
        pytest.param(changed(state="...."), id="a state that is no base64"),
        pytest.param(changed(replyKey="?" * 44), id="a reply key that is no base64"),
        pytest.param(changed(csr="?" * 44), id="a CSR that is no base64"),
        pytest.param(GOOD[:-1], id="cut off"),
        pytest.param(b"\xff" * 100, id="no UTF-8"),
    ],
)
def test_what_is_not_the_canonical_form_of_a_request_is_rejected(body: bytes) -> None:
    """A worker would only answer INVALID_INPUT, after reading it from the log."""
    assert problem_of(body) is Problem.UNDECODABLE


def test_a_csr_of_another_key_is_rejected() -> None:
    """Proof of possession needs no secret to check."""
    csr = bytearray(make_csr())
    csr[-1] ^= 1

    assert problem_of(changed(csr=b64(bytes(csr)))) is Problem.CSR_SIGNATURE


def test_a_weak_key_is_rejected() -> None:
    """It could never become a node."""
    csr = make_csr(rsa.generate_private_key(65537, 1024))  # noqa: S505 - weak on purpose

    assert problem_of(changed(csr=b64(csr))) is Problem.WEAK_KEY


def test_bytes_that_are_no_csr_are_rejected() -> None:
    """Junk never reaches Kafka."""
    assert problem_of(changed(csr=b64(b"\x30\x03junk"))) is Problem.CSR_MALFORMED


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{" + b",".join(b'"k%06d":0' % i for i in range(40_000)) + b"}", id="fields"),
        pytest.param(b'{"a":[' + b",".join([b"9" * 4000] * 120) + b"]}", id="integers"),
        pytest.param(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", id="nesting"),
        pytest.param(b'{"a":' + b"9" * 500_000 + b"}", id="one integer"),
        pytest.param(changed(sealed="A" * (MAX_REQUEST_BYTES - 2000)), id="as large as it may be"),
        pytest.param(changed(sealed="\N{BULLET}" * 160_000), id="no ASCII"),
    ],
)
def test_no_body_holds_the_event_loop_for_long(body: bytes) -> None:
    """Everybody waits while one body is looked at; 50 ms is far above what is measured (5 ms)."""

    def seconds() -> float:
        # Of CPU: what others do on this machine does not count.
        started = time.process_time()
        with contextlib.suppress(Rejected):
            admit(body)
        return time.process_time() - started

    assert min(seconds() for _ in range(10)) < 0.05
