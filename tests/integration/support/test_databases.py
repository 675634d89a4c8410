"""The databases that tests get."""

import asyncpg
import pytest

from tests.support.postgres import Databases

pytestmark = pytest.mark.postgres


async def _schemas(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT nspname FROM pg_namespace")
    finally:
        await connection.close()
    return [row["nspname"] for row in rows]


async def test_a_database_has_our_schema(database: str) -> None:
    assert "watchword" in await _schemas(database)


async def test_an_empty_database_has_not(empty_database: str) -> None:
    assert "watchword" not in await _schemas(empty_database)


async def test_two_databases_of_one_test_are_apart(databases: Databases) -> None:
    async with databases.migrated() as first, databases.migrated() as second:
        connection = await asyncpg.connect(first)
        await connection.execute("CREATE SCHEMA only_here")
        await connection.close()
        assert "only_here" in await _schemas(first)
        assert "only_here" not in await _schemas(second)


async def test_a_database_is_gone_afterwards(databases: Databases) -> None:
    async with databases.empty() as dsn:
        pass
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)
