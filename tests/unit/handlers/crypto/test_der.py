"""The little DER that is read before OpenSSL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.crypto import der
from watchword.handlers.errors import InvalidInput


@given(st.one_of(st.integers(0, 300), st.integers(65000, 65535)))
def test_what_is_written_is_read_back_where_it_stands(length: int) -> None:
    data = b"??" + der.tlv(der.SEQUENCE, bytes(length)) + b"after"

    start, end = der.read(data, 2, der.SEQUENCE)

    assert data[start:end] == bytes(length)
    assert data[end:] == b"after"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "020100"), (127, "02017f"), (128, "02020080"), (65537, "0203010001")],
)
def test_integers_have_their_shortest_positive_form(value: int, encoded: str) -> None:
    """A serial with a leading zero too many is refused by other parsers (RFC 5280, 4.1.2.2)."""
    assert der.unsigned(value).hex() == encoded


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param("", id="nothing"),
        pytest.param("30", id="no length"),
        pytest.param("3003 0000", id="goes beyond the data"),
        pytest.param("3080 0000", id="indefinite length"),
        pytest.param("30817f" + "00" * 127, id="long form for a short length"),
        pytest.param("308200ff" + "00" * 255, id="two bytes for one"),
        pytest.param("3083010000" + "00" * 65536, id="more than is ever needed"),
        pytest.param("3081", id="the length is cut off"),
        pytest.param("0200", id="another tag"),
    ],
)
def test_any_other_spelling_of_a_length_is_refused(encoded: str) -> None:
    """Two parsers that disagree about where something ends are a way around a check."""
    with pytest.raises(InvalidInput, match="csr-malformed"):
        der.read(bytes.fromhex(encoded), 0, der.SEQUENCE)
