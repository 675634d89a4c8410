"""Reads tables with plain SQL."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

AWAY = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What is raised where PostgreSQL goes away in the middle of something; a time-out is an `OSError`."""

Row = Any
"""A row by column name."""


class Tables:
    """The deployment's schema, seen by a superuser."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Take a connection; `opened` makes one."""
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def opened(cls, dsn: str) -> "AsyncGenerator[Tables]":
        """Give the tables as they are at one moment."""
        connection = await asyncpg.connect(
            dsn, timeout=10, server_settings={"search_path": "watchword", "TimeZone": "UTC"}
        )
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield cls(connection)
        finally:
            await connection.close()

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        """Return rows."""
        return list(await self._connection.fetch(query, *arguments))

    async def one(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever is asked
        """Return the first column of the first row."""
        return await self._connection.fetchval(query, *arguments)

    async def names(self) -> list[tuple[str, str]]:
        """Return schema and name of every table that is not PostgreSQL's own."""
        rows = await self.rows(
            "SELECT n.nspname AS schema, c.relname AS name FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_%' "
            "ORDER BY 1, 2"
        )
        return [(row["schema"], row["name"]) for row in rows]

    async def copy(
        self, schema: str, name: str, take: Callable[[bytes], Coroutine[Any, Any, None]]
    ) -> None:
        """Give a whole table as `COPY` writes it in binary, in pieces: text and bytes stand there unchanged."""
        await self._connection.copy_from_table(
            name, schema_name=schema, output=take, format="binary"
        )
