"""Commands as they are signed, and what a node shows to get them: bytes that other releases read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import NODE_ID, NOW, jws_signer
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.commands import (
    FetchEvidence,
    read_command,
    sign_command,
    signed_text,
)
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.crypto.responses import Answers, Question, read_response
from watchword.handlers.errors import SealBroken, SignatureBroken
from watchword.schemas.canonical import b64, canonical
from watchword.schemas.commands import (
    MAX_PAYLOAD_BYTES,
    MAX_SENT,
    MAX_SENT_BYTES,
    Command,
    Report,
    Reports,
)
from watchword.schemas.errors import SchemaError
from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.responses import TYP_COMMAND, TYP_RESPONSE, Commands

JWS = jws_signer()
ID = "01901f3d-8694-739b-aea5-966c26f8ad91"
COMMAND = Command(
    id=ID,
    node_id=NODE_ID,
    certificate_serial="0f" * 16,
    kind="disk.wipe",
    payload=b64(b"all of it"),
    not_after="2026-01-02T03:04:05.000Z",
)
REPLY = hpke.generate()
SEALED = Question(b"\x01" * 32, ID, b"\x02" * 32, REPLY.public)


def test_the_bytes_of_a_command_are_pinned() -> None:
    """Agents of every release verify them."""
    token = sign_command(JWS, COMMAND)
    head = json.loads(unverified_payload(b"." + token.split(b".")[0] + b"."))

    assert head == {"alg": "Ed25519", "kid": JWS.kid, "typ": "watchword-command"}
    assert unverified_payload(token) == (
        b'{"certificateSerial":"' + b"0f" * 16 + b'","id":"01901f3d-8694-739b-aea5-966c26f8ad91",'
        b'"kind":"disk.wipe","nodeId":"' + NODE_ID.encode() + b'",'
        b'"notAfter":"2026-01-02T03:04:05.000Z","payload":"YWxsIG9mIGl0","version":1}'
    )
    assert token == sign_command(JWS, COMMAND)
    assert read_command(token, JWS.public) == COMMAND


def test_the_text_that_a_node_signs_is_pinned() -> None:
    """Another label, order or length prefix would let one signature stand for another."""
    reports = Reports(items=(Report(id=ID, result="failed", exit_status=3),))
    said = b'{"items":[{"exitStatus":3,"id":"' + ID.encode() + b'","result":"failed"}]}'

    assert signed_text(b"t" * 32, b"c" * 32, ID, reports) == (
        b"watchword commands v1"
        b"\0\0\0\x20" + b"t" * 32 + b"\0\0\0\x20" + b"c" * 32 + b"\0\0\0\x24" + ID.encode()
        + len(said).to_bytes(4, "big") + said
    )  # fmt: skip
    evidence = FetchEvidence(b"t" * 32, b"spki", reports, b"signature")
    assert FetchEvidence.decode(evidence.encode()) == evidence


@pytest.mark.parametrize(
    "change",
    [
        {"tbs_sha256": b"short"},
        {"spki_der": b""},
        {"signature": b""},
        {"signature": b"s" * 2000},
        {"reports": Reports(items=(Report(id=ID, result="done"), Report(id=ID, result="failed")))},
    ],
)
def test_evidence_out_of_bounds_is_none(change: dict[str, Any]) -> None:
    """What is out of bounds is found before a signature is looked at."""
    usual: dict[str, Any] = {
        "tbs_sha256": b"t" * 32,
        "spki_der": b"spki",
        "reports": Reports(),
        "signature": b"signature",
    }
    with pytest.raises(SchemaError):
        FetchEvidence.decode(FetchEvidence(**usual | change).encode())


@given(st.binary(max_size=300))
def test_no_payload_raises_anything_else(payload: bytes) -> None:
    """It is what a machine has sealed: anything at all."""
    with pytest.raises(SchemaError):
        FetchEvidence.decode(payload)


def test_nothing_else_that_the_service_signs_is_a_command() -> None:
    """An answer, another key's command, a command that was altered."""
    token = sign_command(JWS, COMMAND)
    answer = JWS.sign(COMMAND.write(), TYP_RESPONSE)
    for forged in (answer, sign_command(jws_signer(), COMMAND), token[:-4] + b"AAAA", b""):
        with pytest.raises(SignatureBroken):
            read_command(forged, JWS.public)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "disk.*"},
        {"kind": "../../bin/sh"},
        {"kind": "Disk.wipe"},
        {"kind": "a" * 65},
        {"id": "../0000"},
        {"version": 2},
        {"payload": "not base64"},
        {"more": 1},
        {"certificateSerial": "0f"},
    ],
)
def test_a_signed_command_of_another_shape_is_none(change: dict[str, Any]) -> None:
    """A kind is a file's name on the node, and an id a folder's."""
    value = json.loads(COMMAND.write()) | change
    with pytest.raises(SchemaError):
        read_command(JWS.sign(canonical(value), TYP_COMMAND), JWS.public)


def test_commands_are_answered_sealed_or_not_at_all() -> None:
    """What they say is for their node alone; a missing key is no reason to say it to everybody."""
    answers = Answers(JWS)
    token = answers.commands(SEALED, NOW, [COMMAND], more=True)
    answer = read_response(token, JWS.public, JWS.kid, REPLY.private_bytes())

    assert answer.commands == Commands(items=(sign_command(JWS, COMMAND).decode(),), more=True)
    assert b"wipe" not in unverified_payload(token)
    with pytest.raises(SealBroken):
        answers.commands(Question(b"\x01" * 32, ID, b"\x02" * 32), NOW, [COMMAND], more=True)


def test_the_greatest_answer_fits_into_a_record() -> None:
    """What does not fit would be answered for ever, and never arrive."""
    each = MAX_SENT_BYTES // MAX_SENT
    large = COMMAND.model_copy(update={"payload": b64(b"x" * each)})
    one = COMMAND.model_copy(update={"payload": b64(b"x" * MAX_PAYLOAD_BYTES)})
    rest = COMMAND.model_copy(update={"payload": b64(b"x" * (MAX_SENT_BYTES - MAX_PAYLOAD_BYTES))})
    for items in ([large] * MAX_SENT, [one, rest]):
        token = Answers(JWS).commands(SEALED, NOW, items, more=True)
        assert len(token) <= MAX_REQUEST_BYTES
        read_response(token, JWS.public, JWS.kid, REPLY.private_bytes())
