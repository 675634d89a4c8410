"""The JSON that clouds sign, read as strictly as if everybody could have written it."""

import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_DOCUMENT_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """A proved instance. Nothing in it can be set by who owns the instance."""

    provider: str
    account: str
    """As `cloud_accounts` has it: an AWS account (`aws-cn:…` outside of `aws`), a project, a subscription."""
    instance: str
    region: str | None
    """None where the provider signs none."""


def read_document(data: bytes, reason: str = "document") -> dict[str, Any]:
    """Return a JSON object in UTF-8, no member of it there twice at any depth.

    Raises:
        Unproven: the given reason.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise Unproven(reason)
    try:
        # As text: `json.loads` guesses UTF-16 and UTF-32 from bytes.
        value = _DECODER.decode(data.decode())
    except (ValueError, RecursionError):
        raise Unproven(reason) from None
    if not is_object(value):
        raise Unproven(reason)
    return value


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether a JSON value is an object."""
    return isinstance(value, dict)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "a member is there twice"
        raise ValueError(message)
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def text_of(document: dict[str, Any], name: str) -> str:
    """Return a member that is text; raises `Unproven` with `document`."""
    value = document.get(name)
    if not isinstance(value, str):
        raise Unproven("document")
    return value
