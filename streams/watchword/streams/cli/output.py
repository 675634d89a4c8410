"""Results on standard output, as a table for people or JSON for programs; messages on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast
from uuid import UUID

from watchword.streams.logs import plain
from watchword.streams.result_json import SCHEMA_VERSION, Verbatim, camel, plain_json

__all__ = [
    "SCHEMA_VERSION",
    "Output",
    "Verbatim",
    "say",
    "show_lines",
    "show_one",
    "show_rows",
    "text",
]

Output = Literal["table", "json", "jsonl"]

_WIDEST = 60


def say(message: str) -> None:
    """Tell the person at the terminal something that is no result."""
    sys.stderr.write(f"{plain(message)}\n")


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output) -> None:
    """Write rows: `columns` in a table; all fields as `{"schemaVersion": …, "items": […]}` or one a line."""
    if output == "table":
        _table(rows, columns)
    elif output == "json":
        _json({"schemaVersion": SCHEMA_VERSION, "items": [camel(row) for row in rows]})
    else:
        for row in rows:
            _json({"schemaVersion": SCHEMA_VERSION, **camel(row)})


def show_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write rows of a table that never ends: without heads, and unaligned."""
    for row in rows:
        sys.stdout.write("  ".join(text(row.get(column)) for column in columns) + "\n")
    sys.stdout.flush()


def show_one(values: Mapping[str, Any], output: Output) -> None:
    """Write one thing: a field a line, or one JSON object with `schemaVersion` on top."""
    if output == "table":
        for line in _lines(values):
            sys.stdout.write(f"{line}\n")
    else:
        _json({"schemaVersion": SCHEMA_VERSION, **camel(values)})


def show_made(values: Mapping[str, Any], name: str, secret: str, output: Output) -> None:
    """Write one thing with its secret: in a table alone on the last line, so that `tail -n1` gives it to a file."""
    if output != "table":
        show_one({**values, name: secret}, output)
        return
    show_one(values, output)
    sys.stdout.write(f"{secret}\n")


def _json(value: object) -> None:
    # ASCII only: no text of a machine may move a terminal's cursor.
    sys.stdout.write(f"{json.dumps(value, default=plain_json)}\n")
    sys.stdout.flush()


def _table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    # The last column has the rest of the line to itself.
    limits = [_WIDEST] * (len(columns) - 1) + [None]
    cells = [
        [text(row.get(c), limit=limit) for c, limit in zip(columns, limits, strict=True)]
        for row in rows
    ]
    heads = [column.replace("_", " ").upper() for column in columns]
    widths = [
        max(len(head), *(len(line[index]) for line in cells), 0) if cells else len(head)
        for index, head in enumerate(heads)
    ]
    for line in (heads, *cells):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")
    sys.stdout.flush()


def _lines(values: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        head = f"{indent}{name.replace('_', ' ').ljust(width)}  "
        match value:
            case Mapping():
                yield head.rstrip()
                yield from _lines(cast("Mapping[str, Any]", value), f"{indent}  ")
            case [Mapping(), *_]:
                yield head.rstrip()
                for inner in cast("list[Mapping[str, Any]]", value):
                    yield from _lines(inner, f"{indent}  ")
                    yield ""
            case _:
                yield head + text(value, limit=None)


def text(value: object, *, limit: int | None = _WIDEST) -> str:
    """Return a value for a terminal: nothing in it moves the cursor, and it is not endlessly long."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            words = cast("list[object]", value)
            found = ", ".join(text(word, limit=None) for word in words) or "none"
        case Mapping():
            found = json.dumps(value, default=plain_json)
        case datetime() | bytes() | UUID():
            found = str(plain_json(value))
        case _:
            found = str(value)
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in found)
    if limit is not None and len(shown) > limit:
        return shown[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return shown
