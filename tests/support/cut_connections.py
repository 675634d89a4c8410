"""Connections that end at one chosen statement, as they do when their server dies."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from asyncpg.connection import Connection

_STATEMENTS = ("execute", "_execute", "_executemany")
"""What every statement of the driver's goes through; `execute` without arguments reaches none of the others."""


@dataclass
class Statements:
    """Those that were begun, on any connection."""

    begun: int = 0


@contextmanager
def cut_at(nth: int) -> Generator[Statements]:
    """Have the connection of the nth statement end in it."""
    seen = Statements()

    def cutting(statement: Any) -> Any:  # noqa: ANN401 - the driver's own methods
        async def run(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            seen.begun += 1
            if seen.begun == nth:
                self.terminate()
                message = "connection was closed in the middle of operation"
                raise asyncpg.ConnectionDoesNotExistError(message)
            return await statement(self, *arguments, **named)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in _STATEMENTS:
            patch.setattr(Connection, name, cutting(getattr(Connection, name)))
        yield seen
