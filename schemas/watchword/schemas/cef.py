r"""Refusals as lines of the ArcSight Common Event Format, version 0: for exports.

Escaping is where CEF goes wrong: `\` and `|` in the header, `\`, `=` and line ends in the extension; nothing else is
escaped, and no other control character may stand in a line (CEF guide, "Character encoding").
"""

from collections.abc import Iterator, Mapping
from typing import Any

from watchword.schemas.times import parse_rfc3339

VENDOR, PRODUCT, VERSION = "Watchword", "Watchword", "1"

_SEVERITIES = {"low": 3, "medium": 5, "high": 8}
_NAMES = {
    "security.join.refused": "Join refused",
    "security.join.invalid": "Join request not understood",
    "security.join.refused.window": "Joins refused in a period",
    "security.join.alert": "Joins that hint at an attack",
}
_CUSTOM = (
    ("cs1", "csrSha256", "CSR SHA-256"),
    ("cs2", "claimedHardwareKeySha256", "Claimed hardware key SHA-256"),
    ("cs3", "requestSha256", "Request SHA-256"),
    ("cs4", "tenant", "Tenant"),
    ("cs5", "attestor", "Attestor"),
    ("cs6", "triedSha256", "Tried credential SHA-256"),
)
_NUMBERS = (("cn1", "suppressed", "Suppressed"), ("cn2", "recorded", "Recorded"))
_LONGEST = {"dvchost": 100, "reason": 1023, "msg": 1023, "externalId": 40, "act": 63}
"""Characters that a key may have, of those that are text of ours."""


def to_cef(event: Mapping[str, Any]) -> str:
    """Return the line of a native event, without a line end.

    Raises `KeyError` or `ValueError` if it is no refusal, summary or alert.
    """
    kind: str = event["type"]
    header = (
        VENDOR,
        PRODUCT,
        VERSION,
        event.get("code") or kind,
        _NAMES[kind],
        str(_SEVERITIES[event.get("severity", "medium")]),
    )
    extension = " ".join(f"{key}={_value(value)}" for key, value in _extension(event))
    return "|".join(("CEF:0", *(_header(field) for field in header), extension))


def _extension(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "rt", _milliseconds(event["time"])
    yield "externalId", event["id"]
    yield "cat", event["type"]
    yield "act", "denied"
    yield "outcome", "failure"
    for key, name in (
        ("reason", "refusal"),
        ("msg", "sentence"),
        ("src", "claimedAddress"),
        ("dvchost", "worker"),
    ):
        value = event.get(name)
        if not value:
            continue
        if key == "src" and ":" in value:
            yield from (("c6a2", value), ("c6a2Label", "Source IPv6 Address"))
        else:
            yield key, str(value)[: _LONGEST.get(key, 1023)]
    if event.get("requestId"):
        yield from (("flexString1", event["requestId"]), ("flexString1Label", "Request id"))
    if event.get("periodStart"):
        yield "start", _milliseconds(event["periodStart"])
        yield "end", _milliseconds(event["periodEnd"])
        yield "cnt", str(event["recorded"] if "recorded" in event else event["refusals"])
    for key, name, label in (*_CUSTOM, *_NUMBERS):
        if event.get(name) is not None:
            yield key, str(event[name])
            yield f"{key}Label", label


def _header(text: str) -> str:
    return _printable(text).replace("\\", "\\\\").replace("|", "\\|")


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("=", "\\=")
    escaped = escaped.replace("\r\n", "\\n").replace("\n", "\\n").replace("\r", "\\r")
    return _printable(escaped)


def _printable(text: str) -> str:
    """Replace what could end a line or move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _milliseconds(text: str) -> str:
    return str(round(parse_rfc3339(text).timestamp() * 1000))
