"""What a console answers at a distance, as the handlers would have returned or raised it."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from watchword.handlers.errors import (
    BadArgument,
    Conflict,
    Denied,
    NotFound,
    Unavailable,
    WatchwordError,
)
from watchword.handlers.store.operators import Row

if TYPE_CHECKING:
    import httpx

_ERRORS: Final[Mapping[int, type[WatchwordError]]] = {
    400: BadArgument,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    413: BadArgument,
    503: Unavailable,
}
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class away:  # noqa: N801 - reads as a statement
    """Translates what HTTP raises."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise `Unavailable` for an error of the connection, `BadArgument` for an address that is none."""
        import httpx  # noqa: PLC0415 - whoever is at a distance has loaded it

        if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
            message = "--server: an address such as https://watchword.example"
            raise BadArgument(message) from None
        if isinstance(error, httpx.HTTPError):
            message = f"the console does not answer ({type(error).__name__})"
            raise Unavailable(message) from None


def read_answer(answer: "httpx.Response") -> Row:
    """Return an answer's content, with the names that rows have; raises the error that it tells of."""
    if not answer.is_success:
        raise error_of(answer)
    try:
        found: object = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or "schemaVersion" not in found:
        message = "what answers at --server is no console"
        raise Unavailable(message)
    values = cast("dict[str, Any]", found)
    return _snake({name: value for name, value in values.items() if name != "schemaVersion"})


def error_of(answer: "httpx.Response") -> WatchwordError:
    """Return the error that an answer tells of."""
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the console answers {answer.status_code}"
    return _ERRORS.get(answer.status_code, WatchwordError)(detail)


def items_of(page: Row) -> list[Row]:
    """Return the rows of a page."""
    return list(page["items"])


def _snake(values: Mapping[str, Any]) -> Row:
    return {_WORD.sub("_", name).lower(): _value(name, value) for name, value in values.items()}


def _value(name: str, value: object) -> object:
    match value:
        case dict() if name == "expect":
            # As the database gives it.
            return json.dumps(value)
        case dict():
            return _snake(cast("dict[str, Any]", value))
        case list():
            return [_value("", one) for one in cast("list[object]", value)]
        case str() if name.endswith("Sha256"):
            return bytes.fromhex(value)
        case _:
            return value
