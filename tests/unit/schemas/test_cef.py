"""Refusals as CEF, read back by a reader that follows the specification alone."""

import json
import re

import pytest

from tests.support.vectors import vector
from tests.unit.schemas.test_ocsf import INVALID, REFUSED, WINDOW
from watchword.schemas.cef import to_cef

_HEADS = 7


def read(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the header's fields and the extension of a CEF line.

    Raises:
        ValueError: it is none.
    """
    heads: list[str] = []
    at = 0
    for _ in range(_HEADS):
        found = re.compile(r"(?:\\.|[^|\\])*\|").match(line, at)
        if found is None:
            message = "not seven fields"
            raise ValueError(message)
        heads.append(re.sub(r"\\(.)", r"\1", found[0][:-1]))
        at = found.end()
    if not heads[0].startswith("CEF:") or "\n" in line or "\r" in line:
        message = "not one line of CEF"
        raise ValueError(message)
    extension: dict[str, str] = {}
    for key, value in re.findall(r"(\w+)=((?:\\.|[^\\=])*?)(?= \w+=|$)", line[at:]):
        extension[key] = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), value)
    return heads, extension


@pytest.mark.parametrize("event", [REFUSED, INVALID, WINDOW], ids=["refused", "invalid", "window"])
def test_a_line_reads_back(event: dict[str, object]) -> None:
    """Whoever parses it gets what the event says."""
    heads, extension = read(to_cef(event))
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
    heads, extension = read(line)
    clean = read(to_cef(REFUSED | {"sentence": "s"}))[1]

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
    assert read(escaped["message"])[0][1:4] == ["secu|rity", "threatmanager|", "1.|0"]
    for case in json.loads((vector("siem-cef") / "not-cef.json").read_text("utf-8"))[:3]:
        with pytest.raises(ValueError, match="not"):
            read(case["message"])


@pytest.mark.vectors
@pytest.mark.parametrize("event", [REFUSED, INVALID, WINDOW], ids=["refused", "invalid", "window"])
def test_every_key_is_in_the_dictionary_and_fits(event: dict[str, object]) -> None:
    """A key that CEF does not have lands in nobody's column."""
    folder = vector("siem-cef")
    dictionary = json.loads((folder / "extension-dictionary.json").read_text("utf-8"))
    keys = {one["key"] for one in json.loads((folder / "extension-keys.json").read_text("utf-8"))}
    address = event | {"claimedAddress": "192.0.2.7"}
    for shown in (event, address, event | {"claimedAddress": "2001:db8::"}):
        for key, value in read(to_cef(shown))[1].items():
            assert key in keys | dictionary.keys()
            limit = dictionary.get(key, {}).get("length", 0)
            assert not limit or len(value) <= limit, key
