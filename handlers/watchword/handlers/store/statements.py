"""The SQL statements by name: each file in `sql/` is a class here, each `-- name` in it a field.

A misspelt name is a type error; a missing or surplus one stops the import.
"""

import re
from importlib import resources
from typing import TypeVar

_NAME = re.compile(r"^-- ([a-z][a-z0-9_]*)$", re.MULTILINE)

T = TypeVar("T")


def parse(text: str) -> dict[str, str]:
    """Split a file at its `-- name` lines; each statement ends without its semicolon."""
    _, *parts = _NAME.split(text)
    return {
        name: body.strip().removesuffix(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def load(cls: type[T], file: str) -> T:
    """Return an instance of `cls` with the statements of `sql/<file>` as its fields."""
    path = resources.files("watchword.handlers.store") / "sql" / file
    return cls(**parse(path.read_text(encoding="utf-8")))
