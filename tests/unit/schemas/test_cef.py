"""Refusals as CEF, read back by a reader that follows the specification alone."""

import json
import re

import pytest

from tests.support.cef_lines import read_cef
from tests.support.security_events import INVALID, REFUSED, WINDOW
from tests.support.vectors import vector
from watchword.schemas.cef import to_cef

_HEADS = 7


@pytest.mark.parametrize("event", [REFUSED, INVALID, WINDOW], ids=["refused", "invalid", "window"])
def test_a_line_reads_back(event: dict[str, object]) -> None:
    """Whoever parses it gets what the event says."""
    heads, extension = read_cef(to_cef(event))
    assert heads[:4] == ["CEF:0", "Watchword", "Watchword", "1"]
    assert heads[4] == event.get("code", event["type"])
    assert 0 <= int(heads[6]) <= 10
    assert extension["externalId"] == event["id"]
    assert extension["reason"] == event["refusal"]


HOSTILE = [
    r"back\slash",
    "pi|pe",
    "equals=sign key=value",
    "two\nlines",
    "carriage\r\nreturn",
    "\\",
    r"ends with \\",
    "a\x00b\x1b[31m\u2028c",
    "x" * 5000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_makes_no_field_and_no_line(text: str) -> None:
    """One unescaped sign, and whoever chose the text writes fields, or whole lines, into the SIEM."""
    event = REFUSED | {"sentence": text, "worker": text, "code": text, "requestId": text}
    line = to_cef(event)
    heads, extension = read_cef(line)
    clean = read_cef(to_cef(REFUSED | {"sentence": "s"}))[1]

    assert line.isprintable()
    assert len(heads) == _HEADS
    assert set(extension) == set(clean)
    expected = re.sub(r"[\x00\x1b\u2028]", "\ufffd", text.replace("\r\n", "\n"))
    assert extension["msg"] == expected[:1023]
    assert extension["flexString1"] == expected


@pytest.mark.vectors
def test_the_reader_reads_what_others_wrote() -> None:
    """A reader that takes anything would show nothing."""
    cases = json.loads((vector("siem-cef") / "decode-open.json").read_text("utf-8"))
    escaped = next(c for c in cases if c["name"] == "escaped_pipes_in_header")
    assert read_cef(escaped["message"])[0][1:4] == ["secu|rity", "threatmanager|", "1.|0"]
    for case in json.loads((vector("siem-cef") / "not-cef.json").read_text("utf-8"))[:3]:
        with pytest.raises(ValueError, match="not"):
            read_cef(case["message"])


@pytest.mark.vectors
@pytest.mark.parametrize("event", [REFUSED, INVALID, WINDOW], ids=["refused", "invalid", "window"])
def test_every_key_is_in_the_dictionary_and_fits(event: dict[str, object]) -> None:
    """A key that CEF does not have lands in nobody's column."""
    folder = vector("siem-cef")
    dictionary = json.loads((folder / "extension-dictionary.json").read_text("utf-8"))
    keys = {one["key"] for one in json.loads((folder / "extension-keys.json").read_text("utf-8"))}
    address = event | {"claimedAddress": "192.0.2.7"}
    for shown in (event, address, event | {"claimedAddress": "2001:db8::"}):
        for key, value in read_cef(to_cef(shown))[1].items():
            assert key in keys | dictionary.keys()
            limit = dictionary.get(key, {}).get("length", 0)
            assert not limit or len(value) <= limit, key
