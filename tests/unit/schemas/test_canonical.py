"""Canonical JSON and strict base64: one content, one spelling."""

import base64
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from watchword.schemas.canonical import (
    b64,
    b64url,
    canonical,
    length_prefixed,
    parse_canonical,
    read_length_prefixed,
    unb64,
    unb64url,
)
from watchword.schemas.errors import NotCanonical

TEXT = st.text(st.characters(codec="utf-8"))
KEYS = st.text(st.characters(max_codepoint=127))
INTEGERS = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_bytes_are_those_of_rfc_8785(value: Any) -> None:  # noqa: ANN401 - any JSON
    """Another implementation signs and hashes the same content; the digests have to agree."""
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_reading_gives_back_what_was_written(value: dict[str, Any]) -> None:
    assert parse_canonical(canonical(value)) == value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5), st.data())
def test_every_other_spelling_is_refused(value: dict[str, Any], data: st.DataObject) -> None:
    """A relay that could respell a request could multiply it."""
    other = data.draw(
        st.sampled_from(
            (
                json.dumps(value, indent=1),
                json.dumps(value, ensure_ascii=True) + " ",
                " " + json.dumps(value),
                "\ufeff" + canonical(value).decode(),
                canonical(value).decode() + "\n",
            )
        )
    )
    with pytest.raises(NotCanonical):
        parse_canonical(other.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"\xff",
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":"\\u0041"}',
        b'{"a":"\\/"}',
        b'{"a":"\\ud800"}',
        b'{"a":1e3}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":01}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"{'a':1}",
        b'{"a":1}{"a":1}',
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_not_the_one_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(NotCanonical):
        parse_canonical(data)


@given(st.binary(max_size=200))
def test_base64_goes_there_and_back(data: bytes) -> None:
    assert unb64(b64(data)) == data
    assert b64(data) == base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "text", ["A", "AA", "AAA", "AB==", "AA=", "AA==\n", " AA==", "AA==AA==", "A A=", "-_==", "AA==A", "é===", "AAA=="]
)  # fmt: skip
def test_base64_has_one_spelling(text: str) -> None:
    """`b64decode` skips junk: many texts would be one content."""
    with pytest.raises(NotCanonical):
        unb64(text)


@given(st.binary(max_size=200))
def test_base64url_goes_there_and_back(data: bytes) -> None:
    assert unb64url(b64url(data)) == data
    assert b64url(data) == base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.mark.parametrize(
    "text", [b"A", b"AB", b"AA==", b"AA=", b"AA\n", b"+/8", b"A A", b"\xff\xff"]
)
def test_base64url_has_one_spelling(text: bytes) -> None:
    """A signature in two spellings would be two tokens that say the same."""
    with pytest.raises(NotCanonical):
        unb64url(text)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_parts_behind_their_lengths_come_apart_as_they_went_in(parts: list[bytes]) -> None:
    joined = length_prefixed(*parts)
    assert list(read_length_prefixed(joined, len(parts))) == parts
    with pytest.raises(NotCanonical):
        read_length_prefixed(joined + b"\0", len(parts))
    with pytest.raises(NotCanonical):
        read_length_prefixed(joined, len(parts) + 1)
