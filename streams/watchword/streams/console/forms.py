"""Forms that come in: bounded, and only from our own pages."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from watchword.handlers.errors import BadArgument, Denied

MAX_FORM_BYTES: Final = 64 * 1024
_MAX_FIELDS: Final = 1000
_MAX_DIGITS: Final = 9
"""Of an integer of PostgreSQL."""
_TYPE: Final = "application/x-www-form-urlencoded"

_NEXT: Final = re.compile(r"/(?:[a-z0-9][A-Za-z0-9/_.-]*)?(?:\?[A-Za-z0-9%&=_.,:+*-]*)?")

Form = Mapping[str, Sequence[str]]


async def read_form(request: Request) -> Form:
    """Return the fields of a form with all their values.

    Raises:
        BadArgument: it is no form, or too large.
    """
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            message = f"a form has at most {MAX_FORM_BYTES} bytes"
            raise BadArgument(message)
    if content_type != _TYPE:
        message = "this is no form"
        raise BadArgument(message)
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MAX_FIELDS,
            errors="strict",
        )
    except ValueError:
        message = "this is no form of ours"
        raise BadArgument(message) from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def one(form: Form, name: str, default: str = "") -> str:
    """Return a field that may be there once; line breaks of a text area become spaces."""
    values = form.get(name, (default,))
    if len(values) != 1:
        message = f"{name}: given twice"
        raise BadArgument(message)
    return " ".join(values[0].split())


def text(form: Form, name: str) -> str:
    """Return what was typed into a text area, once or not at all, with its lines; browsers end them with CR LF."""
    values = form.get(name, ("",))
    if len(values) != 1:
        message = f"{name}: given twice"
        raise BadArgument(message)
    return values[0].replace("\r\n", "\n")


def seen_version(form: Form) -> int:
    """Return the version of what the visitor saw, which the form carries; raises `BadArgument`."""
    version = one(form, "version")
    if not (version.isascii() and version.isdigit()) or len(version) > _MAX_DIGITS:
        message = "what is to be done cannot be read: nothing was done"
        raise BadArgument(message)
    return int(version)


def safe_next(text: str) -> bool:
    """Tell whether an address is a page of ours: nobody is sent elsewhere after signing in or acting."""
    return _NEXT.fullmatch(text) is not None


def check_origin(request: Request, origins: Collection[str]) -> None:
    """Raise `Denied` for what a page of somebody else sent.

    Browsers name the origin of every POST. A client that names none is no browser, and carries nobody's cookie
    that it was not given.
    """
    said = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site")
    if (said is not None and said not in origins) or site not in {None, "same-origin", "none"}:
        message = "this came from a page of somebody else: nothing was done"
        raise Denied(message)
