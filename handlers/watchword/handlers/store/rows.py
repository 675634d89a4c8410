"""A row as JSON: what the journal keeps of a table, so that a rebuild writes the same row again."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from watchword.schemas.canonical import b64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

JSON_COLUMNS = frozenset(("expect", "detail", "headers", "policy"))
"""Columns of type jsonb, which the driver gives as text."""


def as_row(record: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return every column of a row by name.

    Bytes become base64, times integer microseconds since the epoch, uuids text; jsonb its value.
    """
    return {name: _json(name, value) for name, value in dict(record).items()}


def _json(name: str, value: Any) -> Any:  # noqa: ANN401 - what a column holds
    match value:
        case bytes():
            return b64(value)
        case datetime():
            return (value - _EPOCH) // _MICROSECOND
        case UUID():
            return str(value)
        case str() if name in JSON_COLUMNS:
            return json.loads(value)
        case _:
            return value
