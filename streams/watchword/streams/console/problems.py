"""What went wrong, for programs: RFC 9457 problem details. Operators are told in full, strangers nothing."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from watchword.handlers.errors import (
    BadArgument,
    Conflict,
    Denied,
    NotFound,
    StoreUnavailable,
    Unavailable,
    WatchwordError,
)
from watchword.schemas.canonical import canonical
from watchword.streams.console.patterns import IN_WORDS

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:watchword:problem:"

SLUGS: Final = {
    400: "bad-argument",
    401: "unauthenticated",
    403: "denied",
    404: "not-found",
    405: "method-not-allowed",
    409: "conflict",
    413: "too-large",
    415: "media-type",
    500: "internal",
    503: "unavailable",
}

_SHOWN = 5
_RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Told:
    """A status, and a sentence for whoever asked."""

    status: int
    detail: str


class Unauthenticated(WatchwordError):
    """Give an API token: `Authorization: Bearer …`; or show a client certificate, where the console asks for one."""


def told(error: Exception) -> Told:
    """Return what to say of an error; of our own bugs, only that there was one."""
    match error:
        case Unauthenticated():
            return Told(401, str(error))
        case BadArgument():
            return Told(400, str(error))
        case ValidationError():
            return Told(400, _of_validation(error))
        case NotFound():
            return Told(404, str(error))
        case Conflict():
            return Told(409, str(error))
        case Denied():
            return Told(403, str(error))
        case StoreUnavailable():
            return Told(
                503, "PostgreSQL is away; nothing was half done. Try again in a few seconds."
            )
        case Unavailable():
            return Told(503, f"{error}. Try again in a few seconds.")
        case _:
            return Told(500, "The console failed; its log says why.")


def problem(said: Told, *, allow: str | None = None) -> Response:
    """Return a problem as an answer."""
    headers = {"Cache-Control": "no-store"}
    if said.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    if said.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="watchword"'
    if allow is not None:
        headers["Allow"] = allow
    body = canonical(
        {
            "type": TYPE_PREFIX + SLUGS[said.status],
            "title": HTTPStatus(said.status).phrase,
            "status": said.status,
            "detail": said.detail,
        }
    )
    return Response(body, said.status, headers, media_type=MEDIA_TYPE)


def _of_validation(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    said = [
        f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {_words(one)}" for one in found
    ]
    return "; ".join(said[:_SHOWN]).encode("utf-8", "replace").decode()


def _words(one: ErrorDetails) -> str:
    pattern: object = one.get("ctx", {}).get("pattern")
    return IN_WORDS.get(str(pattern), one["msg"])
