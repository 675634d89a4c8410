"""Results as JSON, the same from the command line and from the API."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from watchword.schemas.times import rfc3339

SCHEMA_VERSION = 1
"""Of every JSON result: a field is never removed or given another meaning within a version."""


class Verbatim(dict[str, Any]):
    """What has been handed in by somebody, and comes out with the names that it had."""


def camel(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its names in camelCase, at every depth."""
    return {_camel_name(name): _camel_value(value) for name, value in values.items()}


def _camel_value(value: object) -> object:
    match value:
        case Verbatim():
            return dict(value)
        case Mapping():
            return camel(cast("Mapping[str, Any]", value))
        case list() | tuple():
            return [_camel_value(inner) for inner in cast("list[object]", value)]
        case _:
            return value


def _camel_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def plain_json(value: object) -> str:
    """Return what JSON has no type for: times as RFC 3339, bytes in hexadecimal, UUIDs and paths as text."""
    match value:
        case datetime():
            return rfc3339(value)
        case bytes():
            return value.hex()
        case UUID() | Path():
            return str(value)
        case _:
            message = f"{type(value).__name__} has no form in JSON"
            raise TypeError(message)
