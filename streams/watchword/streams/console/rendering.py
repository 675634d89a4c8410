"""Pages from templates. Every value is escaped; text of machines is also freed of what does not show."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final, cast
from uuid import UUID

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from watchword.schemas.times import rfc3339

_FOLDER: Final = "watchword.streams.console"
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_GROUP: Final = 8
_NONE: Final = "\N{EN DASH}"
_CODE: Final = re.compile("`([^`]+)`")

STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "htmx-2.0.11.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""What is served as it is."""


@cache
def static_bytes(name: str) -> bytes:
    """Return a file of `STATIC`."""
    return (resources.files(_FOLDER) / "static" / name).read_bytes()


@cache
def static_address(name: str) -> str:
    """Return the address of a file: another one for other content, so that it may be kept for ever."""
    return f"/static/{sha256(static_bytes(name)).hexdigest()[:16]}/{name}"


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader(_FOLDER, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "said": said,
        "moment": moment,
        "breakable": breakable,
        "coded": coded,
        "fingerprint": fingerprint,
        "briefly": briefly,
        "lasting": lasting,
    }
    made.globals["static"] = static_address
    return made


def said(value: object) -> str:
    """Return a value as text that shows as it is: nothing in it turns, hides or overwrites what stands around it."""
    match value:
        case None | "":
            return _NONE
        case bool():
            return "yes" if value else "no"
        case bytes():
            return value.hex()
        case datetime():
            return rfc3339(value)
        case list() | tuple():
            return ", ".join(said(one) for one in cast("list[object]", value)) or "none"
        case Mapping():
            found = cast("Mapping[object, object]", value)
            there = {name: one for name, one in found.items() if one is not None}
            return ", ".join(f"{said(name)}: {said(one)}" for name, one in there.items()) or _NONE
        case _:
            text = str(value)
            return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def coded(value: object) -> Markup:
    """Return text with what stands between backquotes as code, as in our reasons."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(said(value)))))  # noqa: S704 - escaped before


def breakable(value: object) -> Markup:
    """Return a name of parts, which may go on in the next line after each of them."""
    text = escape(said(value))
    for sign in ".:@":
        text = text.replace(sign, Markup(f"{sign}<wbr>"))  # noqa: S704 - one of three signs
    return text


def moment(value: datetime | None) -> Markup | str:
    """Return a time in UTC, to the second."""
    if value is None:
        return _NONE
    shown = value.astimezone(UTC)
    # Day and time of day each on one line: browsers would break a day at its hyphens.
    template = Markup('<time datetime="{}" title="UTC"><span>{}</span> <span>{}</span></time>')
    return template.format(rfc3339(value), f"{shown:%Y-%m-%d}", f"{shown:%H:%M:%S}")


def lasting(seconds: float | None) -> str:
    """Return a duration as people say it, in its greatest unit."""
    if seconds is None:
        return _NONE
    span = timedelta(seconds=max(0.0, seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if span >= unit * 2:
            return f"{span // unit} {name}"
    return f"{span.total_seconds():.0f} s"


def fingerprint(value: bytes) -> Markup:
    """Return a digest in groups that two people can read to each other."""
    digits = value.hex()
    groups = [digits[at : at + _GROUP] for at in range(0, len(digits), _GROUP)]
    return Markup('<span class="print">{}</span>').format(Markup(" ").join(map(escape, groups)))


def briefly(value: object) -> Markup:
    """Return the end of an id, whose beginning is its time, or the beginning of a digest; all of it for who asks."""
    text = str(value) if isinstance(value, UUID) else said(value)
    shown = f"…{text[-12:]}" if isinstance(value, UUID) else text[:12]
    return Markup('<span class="mono" title="{}">{}</span>').format(text, shown)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)
