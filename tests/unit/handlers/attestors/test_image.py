"""An image's secret as text and as evidence, and its prover."""

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.attestors.image.evidence import (
    MAX_SECOND_BYTES,
    ImageEvidence,
    SecondEvidence,
    asks_for,
    decode,
    new_image,
    parse_image,
    text_of,
)
from watchword.handlers.attestors.image.prover import ImageProver
from watchword.handlers.attestors.join_token.evidence import new_token, parse_token
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.crypto.named_secrets import PAYLOAD_BYTES, NamedSecret
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import UnverifiedPayload

ID = "a1b2c3d4e5f6g7h8"
SECRET = bytes(range(32))
TEXT = "wi1.a1b2c3d4e5f6g7h8.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
PAYLOAD = b"\0\0\0\x10" + ID.encode() + b"\0\0\0\x20" + SECRET


def test_new_image_is_its_text_and_its_hash() -> None:
    """The service stores what nobody was shown, and the other way round; 256 bits, new each time."""
    image_id, text, digest = new_image()
    shown = parse_image(text)

    assert shown.id == image_id
    assert sha256(shown.secret).digest() == digest
    assert len({new_image()[2] for _ in range(100)}) == 100


def test_text_and_evidence_have_the_bytes_they_were_released_with() -> None:
    """Secrets are built into images that are used for years."""
    shown = parse_image(f"  {TEXT}\n")

    assert (shown.id, shown.secret, text_of(shown)) == (ID, SECRET, TEXT)
    assert shown.encode() == ImageEvidence(shown).encode() == PAYLOAD
    assert decode(PAYLOAD) == ImageEvidence(shown)
    assert len(PAYLOAD) == PAYLOAD_BYTES
    assert TEXT.split(".")[2] not in repr(shown)


@pytest.mark.parametrize(
    "text",
    ["", "wi1..", TEXT.replace("wi1", "ww1"), TEXT[:-1], TEXT + "A", TEXT[:-1] + "9", TEXT.upper()],
)
def test_other_text_is_refused_and_not_repeated(text: str) -> None:
    """It may be another secret, pasted into the wrong place."""
    with pytest.raises(BadArgument) as caught:
        parse_image(text)
    assert not text or text not in str(caught.value)


SECOND = length_prefixed(b"x509pop", b"evidence of its own")


def test_second_evidence_follows_the_secret() -> None:
    """What another attestor is shown goes with the secret, and is no business of the image's."""
    second = SecondEvidence("x509pop", UnverifiedPayload(b"evidence of its own"))
    both = ImageEvidence(NamedSecret(ID, SECRET), second)

    assert both.encode() == PAYLOAD + SECOND
    assert decode(PAYLOAD + SECOND) == both


@pytest.mark.parametrize(
    "rest",
    [
        b"\0",
        SECOND[:-1],
        SECOND + b"\0",
        SECOND + length_prefixed(b""),
        length_prefixed(b"x509pop"),
        length_prefixed(b"", b"evidence"),
        length_prefixed(b"X509POP", b"evidence"),
        length_prefixed(b"x509pop\n", b"evidence"),
        length_prefixed(b"\xffpop", b"evidence"),
        length_prefixed(b"a" * 64, b"evidence"),
        length_prefixed(b"x509pop", bytes(MAX_SECOND_BYTES + 64)),
    ],
)
def test_second_evidence_has_one_form(rest: bytes) -> None:
    """Cut, doubled, without an id that an attestor can have, or larger than any request: refused."""
    with pytest.raises(SchemaError):
        decode(PAYLOAD + rest)


@pytest.mark.parametrize(
    ("second_fact", "attestor"),
    [
        ("attestor:tpm", "tpm"),
        ("attestor:acme-asset", "acme-asset"),
        ("approval", None),
        ("unsafe_single_factor", None),
        ("attestor:", None),
        ("attestor:TPM", None),
        ("attestor:tpm\n", None),
        ("attestor:tpm x", None),
        ("tpm", None),
    ],
)
def test_second_fact_names_an_attestor_or_none(second_fact: str, attestor: str | None) -> None:
    """A row that cannot be read names nobody, and then admits nobody."""
    assert asks_for(second_fact) == attestor


async def test_prover_shows_what_the_second_one_has(tmp_path: Path) -> None:
    """Both at once, each read when it is shown; without the second's evidence there is none at all."""
    file = tmp_path / "token"
    _, text, _ = new_token()
    prover = ImageProver(lambda: TEXT, JoinTokenProver.of_file(file))
    with pytest.raises(NoEvidence):
        await prover.evidence(bytes(32), "node")
    file.write_text(text)

    shown = decode(await prover.evidence(bytes(32), "node"))
    second = SecondEvidence("join-token", UnverifiedPayload(parse_token(text).encode()))
    assert shown == ImageEvidence(NamedSecret(ID, SECRET), second)
    with pytest.raises(NoEvidence):
        await prover.answer(b"challenge", bytes(32), "node")


@given(payload=st.binary(max_size=80) | st.binary(min_size=56, max_size=56))
def test_any_bytes_are_decoded_or_refused(payload: bytes) -> None:
    """And what is decoded has no second encoding."""
    try:
        shown = decode(payload)
    except SchemaError:
        return
    assert shown.encode() == payload


@pytest.mark.parametrize(
    "payload",
    [
        length_prefixed(ID.encode(), SECRET + b"\0"),
        length_prefixed(ID.upper().encode(), SECRET),
        length_prefixed(ID.encode() + b"\0", SECRET[1:]),
        length_prefixed(b"", ID.encode() + SECRET),
        PAYLOAD + b"\0",
    ],
)
def test_other_lengths_and_alphabets_are_refused(payload: bytes) -> None:
    """Nothing is looked up by an id that no image can have."""
    with pytest.raises(SchemaError):
        decode(payload)


async def test_prover_reads_its_file_when_asked(tmp_path: Path) -> None:
    """A first boot writes it later than the agent starts; without it there is nothing to send."""
    file = tmp_path / "image"
    prover = ImageProver.of_file(file)
    with pytest.raises(NoEvidence):
        await prover.evidence(bytes(32), "node")
    file.write_text("\n")
    with pytest.raises(NoEvidence):
        await prover.evidence(bytes(32), "node")
    file.write_text(TEXT + "\n")

    shown = decode(await prover.evidence(bytes(32), "node"))
    assert shown == ImageEvidence(NamedSecret(ID, SECRET))
    with pytest.raises(NoEvidence):
        await prover.answer(b"challenge", bytes(32), "node")


@pytest.mark.parametrize("content", [b"x" * 5_000, b"\xff\xfe", TEXT.encode() * 2])
async def test_prover_refuses_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    """A wrong path is told at once, and its content is not."""
    file = tmp_path / "image"
    file.write_bytes(content)
    with pytest.raises(BadArgument) as caught:
        await ImageProver.of_file(file).evidence(bytes(32), "node")
    assert content.decode("ascii", "replace") not in str(caught.value)
