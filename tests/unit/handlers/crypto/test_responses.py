"""The signed answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import DAY, NODE_ID, NOW, jws_signer
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.crypto.responses import Answers, Question, read_response
from watchword.handlers.errors import SealBroken, SignatureBroken
from watchword.schemas.canonical import b64, canonical, length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.responses import (
    PAD_TO,
    RESPONSE_INFO_LABEL,
    TYP_COMMAND,
    TYP_RESPONSE,
    Deferred,
    Failed,
    Joined,
    JoinResponse,
    Refused,
)
from watchword.schemas.times import rfc3339

JWS = jws_signer()
ANSWERS = Answers(JWS)
REPLY = hpke.generate()
REQUEST_ID = "0190163d-8694-739b-aea5-966c26f8ad91"
CLEAR = Question(b"\x01" * 32, REQUEST_ID, b"\x02" * 32)
SEALED = Question(b"\x01" * 32, REQUEST_ID, b"\x02" * 32, REPLY.public)
UNREADABLE = Question(b"\x01" * 32)
QUESTIONS = [
    pytest.param(CLEAR, id="clear"),
    pytest.param(SEALED, id="sealed"),
    pytest.param(UNREADABLE, id="unreadable"),
]


def read(token: bytes, reply_private: bytes | None = REPLY.private_bytes()) -> JoinResponse:
    return read_response(token, JWS.public, JWS.kid, reply_private)


def expected(question: Question, outcome: str, **member: Any) -> JoinResponse:  # noqa: ANN401
    """Return the answer as the schema makes it."""
    csr = question.csr_sha256
    fields: dict[str, Any] = {
        "request_sha256": question.request_sha256.hex(),
        "request_id": question.request_id,
        "csr_sha256": None if csr is None else csr.hex(),
        "issued_at": rfc3339(NOW),
        "outcome": outcome,
    }
    return JoinResponse(**fields, **member)


def joined(question: Question, **change: Any) -> bytes:  # noqa: ANN401
    fields: dict[str, Any] = {
        "node_id": NODE_ID,
        "tenant": "acme",
        "pool": "default",
        "site": None,
        "role": "node",
        "chain": [b"leaf", b"issuer"],
        "allowed_kinds": ["diag.*"],
        "renew_after": NOW + DAY,
    }
    return ANSWERS.joined(question, NOW, **fields | change)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("site", [None, "berlin"])
@pytest.mark.parametrize("kinds", [None, [], ["a", "b.*"]], ids=["any", "none", "some"])
def test_joined_says_what_the_schema_says(
    question: Question, site: str | None, kinds: list[str] | None
) -> None:
    """The hot path writes a dictionary; the schema is what agents and other languages read."""
    member = Joined(
        node_id=NODE_ID,
        tenant="acme",
        pool="default",
        site=site,
        role="node",
        chain=(b64(b"leaf"), b64(b"issuer")),
        allowed_kinds=None if kinds is None else tuple(kinds),
        renew_after=rfc3339(NOW + DAY),
    )

    answer = read(joined(question, site=site, allowed_kinds=kinds))

    assert answer == expected(question, "joined", joined=member)


@pytest.mark.parametrize("question", QUESTIONS)
def test_deferred_says_what_the_schema_says(question: Question) -> None:
    approval = ANSWERS.approval(question, NOW, retry_after_seconds=60)
    challenge = ANSWERS.challenge(
        question, NOW, attestor="tpm", challenge=b"credential", state=b"sealed", not_after=NOW + DAY
    )

    assert read(approval) == expected(
        question, "deferred", deferred=Deferred(type="approval", retry_after_seconds=60)
    )
    assert read(challenge) == expected(
        question,
        "deferred",
        deferred=Deferred(
            type="challenge",
            attestor="tpm",
            challenge=b64(b"credential"),
            state=b64(b"sealed"),
            not_after=rfc3339(NOW + DAY),
        ),
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_refused_and_failed_say_what_the_schema_says(question: Question) -> None:
    assert read(ANSWERS.refused(question, NOW)) == expected(question, "refused", refused=Refused())
    for code in ("UNSUPPORTED", "INVALID_INPUT", "UNAVAILABLE"):
        answer = read(ANSWERS.failed(question, NOW, code))
        assert answer == expected(question, "failed", failed=Failed(code=code))


def test_the_bytes_of_a_refusal_are_pinned() -> None:
    """Agents of every release read them."""
    payload = unverified_payload(ANSWERS.refused(CLEAR, NOW))

    assert payload == (
        b'{"csrSha256":"' + b"02" * 32 + b'","issuedAt":"2026-01-02T03:04:05.000Z",'
        b'"outcome":"refused","refused":{"code":"ACCESS_DENIED","message":"Join refused"},'
        b'"requestId":"0190163d-8694-739b-aea5-966c26f8ad91","requestSha256":"' + b"01" * 32 + b'"}'
    )


def test_unset_outcomes_are_left_out() -> None:
    """A null beside the outcome would be a second way to say the same."""
    value = json.loads(unverified_payload(ANSWERS.approval(CLEAR, NOW, retry_after_seconds=9)))

    assert value.keys() == {
        "csrSha256",
        "deferred",
        "issuedAt",
        "outcome",
        "requestId",
        "requestSha256",
    }
    assert value["deferred"] == {"type": "approval", "retryAfterSeconds": 9}


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.booleans())
def test_every_refusal_has_one_length_and_one_form(
    request_sha256: bytes,
    csr_sha256: bytes,
    seal: bool,  # noqa: FBT001
) -> None:
    """Whoever could tell refusals apart would learn what to try next."""
    question = Question(request_sha256, REQUEST_ID, csr_sha256, REPLY.public if seal else None)
    usual = ANSWERS.refused(SEALED if seal else CLEAR, NOW)

    token = ANSWERS.refused(question, NOW)

    assert [len(part) for part in token.split(b".")] == [len(part) for part in usual.split(b".")]
    assert token.split(b".")[0] == usual.split(b".")[0]


def test_a_sealed_answer_shows_a_reader_of_kafka_digest_and_time_alone() -> None:
    """On a shared topic everybody reads everybody's answers."""
    value = json.loads(unverified_payload(joined(SEALED)))

    assert value.keys() == {"requestSha256", "issuedAt", "sealed"}
    assert len(value["sealed"]) % 4 == 0
    for outcome in (joined(SEALED), ANSWERS.refused(SEALED, NOW)):
        sealed = json.loads(unverified_payload(outcome))["sealed"]
        assert (len(sealed) * 3 // 4 - sealed.count("=") - hpke.OVERHEAD_BYTES) % PAD_TO == 0


def test_a_sealed_answer_needs_the_reply_key() -> None:
    token = ANSWERS.refused(SEALED, NOW)

    for private in (None, hpke.generate().private_bytes()):
        with pytest.raises(SealBroken):
            read(token, private)


def test_nothing_is_answered_to_a_key_that_nothing_can_be_sealed_to() -> None:
    """Falling back to clear text here would let a relay choose it; the caller decides."""
    with pytest.raises(SealBroken):
        ANSWERS.refused(Question(b"\x01" * 32, None, None, bytes(32)), NOW)


def test_another_key_another_name_and_another_type_are_no_answer() -> None:
    """An agent trusts one pinned key, and a command is not an answer."""
    token = ANSWERS.refused(CLEAR, NOW)
    command = JWS.sign(unverified_payload(token), TYP_COMMAND)

    for signed, public, kid in (
        (token, jws_signer().public, JWS.kid),
        (token, JWS.public, "s-2"),
        (command, JWS.public, JWS.kid),
    ):
        with pytest.raises(SignatureBroken):
            read_response(signed, public, kid, None)


def _signed(value: dict[str, Any]) -> bytes:
    return JWS.sign(canonical(value), TYP_RESPONSE)


REFUSAL: dict[str, Any] = json.loads(unverified_payload(ANSWERS.refused(CLEAR, NOW)))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({**REFUSAL, "outcome": "joined"}, id="another outcome than member"),
        pytest.param({**REFUSAL, "joined": None}, id="a null beside it"),
        pytest.param({**REFUSAL, "failed": {"code": "UNAVAILABLE"}}, id="two outcomes"),
        pytest.param({**REFUSAL, "refused": None}, id="an outcome of nothing"),
        pytest.param({k: v for k, v in REFUSAL.items() if k != "refused"}, id="no outcome"),
        pytest.param({**REFUSAL, "more": 1}, id="an unknown member"),
        pytest.param({**REFUSAL, "requestSha256": "01"}, id="a short digest"),
        pytest.param(
            {k: v for k, v in REFUSAL.items() if k != "refused"}
            | {"outcome": "deferred", "deferred": {"type": "approval"}},
            id="an approval without its time",
        ),
        pytest.param(
            {k: v for k, v in REFUSAL.items() if k != "refused"}
            | {"outcome": "deferred", "deferred": {"type": "challenge", "retryAfterSeconds": 1}},
            id="a challenge without a challenge",
        ),
        pytest.param({"requestSha256": "01" * 32, "sealed": "AA=="}, id="sealed without a time"),
    ],
)
def test_an_authentic_answer_of_another_shape_is_none(value: dict[str, Any]) -> None:
    """Fails closed: what this release does not know is not a join."""
    with pytest.raises(SchemaError):
        read(_signed(value))


def _sealed_to_reply_key(plaintext: bytes, *, digest: bytes = b"\x01" * 32) -> bytes:
    info = RESPONSE_INFO_LABEL + length_prefixed(digest)
    sealed = hpke.seal(REPLY.public, plaintext, info)
    value = {"requestSha256": digest.hex(), "issuedAt": rfc3339(NOW), "sealed": b64(sealed)}
    return _signed(value)


def _padded(payload: bytes, *, fill: bytes = b"\0", size: int = PAD_TO) -> bytes:
    return (len(payload).to_bytes(4, "big") + payload).ljust(size, fill)


def test_only_the_padding_of_the_schema_is_taken() -> None:
    payload = canonical(REFUSAL)
    assert read(_sealed_to_reply_key(_padded(payload))).outcome == "refused"

    for plaintext in (
        _padded(payload, fill=b"\1"),
        _padded(payload, size=2 * PAD_TO),
        payload,
        b"",
        b"\xff" * PAD_TO,
    ):
        with pytest.raises(SchemaError):
            read(_sealed_to_reply_key(plaintext))


def test_a_sealed_answer_speaks_of_the_request_beside_it() -> None:
    """Else the digest in clear could lead an agent to another request's answer."""
    token = _sealed_to_reply_key(_padded(canonical(REFUSAL)), digest=b"\x03" * 32)

    with pytest.raises(SchemaError):
        read(token)
