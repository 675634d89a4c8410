"""A join token as text and as evidence."""

from base64 import urlsafe_b64decode
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.attestors.join_token.evidence import (
    PAYLOAD_BYTES,
    decode,
    encode,
    new_token,
    parse_token,
)
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.errors import SchemaError

ID = "a1b2c3d4e5f6g7h8"
SECRET = bytes(range(32))
TEXT = "ww1.a1b2c3d4e5f6g7h8.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
PAYLOAD = b"\0\0\0\x10" + ID.encode() + b"\0\0\0\x20" + SECRET


def test_new_token_is_its_text_and_its_hash() -> None:
    """The service stores what the operator was never shown, and the other way round."""
    token_id, text, secret_sha256 = new_token()

    token = parse_token(text)

    assert token.id == token_id
    assert sha256(token.secret).digest() == secret_sha256
    assert new_token()[0] != token_id


def test_text_and_evidence_have_the_bytes_they_were_released_with() -> None:
    """Tokens are printed and kept; agents of one release meet workers of another."""
    token = parse_token(TEXT)

    assert (token.id, token.secret) == (ID, SECRET)
    assert encode(ID, SECRET) == PAYLOAD
    assert decode(PAYLOAD) == (ID, SECRET)
    assert len(PAYLOAD) == PAYLOAD_BYTES


def test_secret_does_not_show() -> None:
    """A token in a traceback or a log line is a token given away."""
    assert TEXT.split(".")[2] not in repr(parse_token(TEXT))
    assert repr(SECRET) not in repr(parse_token(TEXT))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ww1",
        TEXT[:-1],
        TEXT + "A",
        TEXT.upper(),
        TEXT.replace("ww1", "ww2"),
        TEXT.replace(".", ":"),
        TEXT.replace("a1b2", "a1b!"),
        TEXT[:-1] + "9",  # the same 32 bytes, other spare bits
        TEXT[:-1] + "ｘ",  # noqa: RUF001 - a wide x
        TEXT.replace("A", "Α"),  # noqa: RUF001 - a Greek letter, as word processors like them
    ],
)
def test_what_is_no_token_is_not_repeated(text: str) -> None:
    """People paste passwords into the wrong window."""
    with pytest.raises(BadArgument) as raised:
        parse_token(text)

    assert text in ("", "ww1") or text not in str(raised.value)


def test_white_space_around_a_token_is_dropped() -> None:
    """Files end in a newline."""
    assert parse_token(f"  {TEXT}\r\n").id == ID


@given(st.text(max_size=80))
def test_any_text_is_a_token_or_a_bad_argument(text: str) -> None:
    """No text brings the agent down."""
    try:
        token = parse_token(text)
    except BadArgument:
        return
    assert urlsafe_b64decode(text.strip()[21:] + "=") == token.secret


@given(st.binary(max_size=80) | st.builds(length_prefixed, st.binary(), st.binary()))
def test_any_payload_is_a_token_or_a_schema_error(payload: bytes) -> None:
    """The payload is what a stranger sealed: the verifier must be able to rely on one error."""
    try:
        token_id, secret = decode(payload)
    except SchemaError:
        return
    assert encode(token_id, secret) == payload


@given(st.integers(0, PAYLOAD_BYTES - 1), st.integers(1, 255))
def test_payload_has_one_spelling(at: int, change: int) -> None:
    """Whatever a changed byte makes of it, it is never the same token."""
    changed = bytearray(PAYLOAD)
    changed[at] ^= change
    try:
        assert decode(bytes(changed)) != (ID, SECRET)
    except SchemaError:
        return


@pytest.mark.parametrize("cut", range(PAYLOAD_BYTES))
def test_truncated_payload_is_refused(cut: int) -> None:
    """A parser that survives truncation has met the network before."""
    with pytest.raises(SchemaError):
        decode(PAYLOAD[:cut])


def test_only_tokens_are_encoded() -> None:
    """The prover's own mistakes end here, not at the verifier."""
    with pytest.raises(ValueError, match="no id and secret"):
        encode(ID, SECRET[:-1])
    with pytest.raises(ValueError, match="no id and secret"):
        encode("short", SECRET)


async def test_token_file_that_is_not_there_yet_is_no_evidence(tmp_path: Path) -> None:
    """The file may be written by what runs after the agent; that is no reason to give up."""
    path = tmp_path / "token"
    prover = JoinTokenProver.of_file(path)

    with pytest.raises(NoEvidence):
        await prover.evidence(bytes(32), "node")
    path.write_text("\n")
    with pytest.raises(NoEvidence):
        await prover.evidence(bytes(32), "node")
    path.write_text(f"{TEXT}\n")

    assert await prover.evidence(bytes(32), "node") == PAYLOAD


@pytest.mark.parametrize(
    "content", [b"hunter2", b"\xff" * 10, b"x" * 5000], ids=["word", "bytes", "large"]
)
async def test_file_without_a_token_is_said_so(tmp_path: Path, content: bytes) -> None:
    """Waiting for a wrong file to become right would wait for ever."""
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(BadArgument):
        await JoinTokenProver.of_file(path).evidence(bytes(32), "node")


async def test_token_answers_no_challenge() -> None:
    """A bearer token has nothing to answer with."""
    with pytest.raises(NoEvidence):
        await JoinTokenProver.of_text(TEXT).answer(b"why", bytes(32), "node")
