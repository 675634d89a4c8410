"""Attestors' own tables come with their packages, under a role that can touch nothing of ours."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store.plugin_migrations import (
    migrate_plugin,
    plugin_migrations,
    plugin_status,
    table_prefix,
)

pytestmark = pytest.mark.postgres

ATTESTOR = "acme-asset"
PACKAGE = "a_package_with_tables"
TAGS = "CREATE TABLE plg_acme_asset__tags (tag text PRIMARY KEY);"

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a package with these migrations; what it had before is gone."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def files(**migrations: str) -> None:
        folder = tmp_path / PACKAGE / "migrations"
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / PACKAGE / "__init__.py").touch()
        for old in folder.iterdir():
            old.unlink()
        for name, sql in migrations.items():
            (folder / f"{name.removeprefix('m')}.sql").write_text(sql)
        sys.modules.pop(PACKAGE, None)
        importlib.invalidate_caches()

    return files


async def fetch(dsn: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "watchword"})
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def test_each_file_is_applied_once(database: str, write: Write) -> None:
    """A restart, or a second operator, must change nothing."""
    write(m0001_tags=TAGS)
    assert [m.number for m in await migrate_plugin(database, ATTESTOR, PACKAGE)] == [1]
    assert await migrate_plugin(database, ATTESTOR, PACKAGE) == []
    write(m0001_tags=TAGS, m0002_more="ALTER TABLE plg_acme_asset__tags ADD pool text;")
    waiting = await plugin_status(database, ATTESTOR, PACKAGE)
    assert [m.applied is None for m in waiting] == [False, True]
    assert [m.name for m in await migrate_plugin(database, ATTESTOR, PACKAGE)] == ["more"]
    [(owner,)] = await fetch(
        database,
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'plg_acme_asset__tags'",
    )
    assert owner == "plg_acme_asset"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE TABLE tags (tag text);", "makes tags"),
        ("CREATE TABLE plg_other__tags (tag text);", "makes plg_other__tags"),
        ("DROP TABLE tokens;", "must be owner of table tokens"),
        ("UPDATE tokens SET uses_left = 100;", "permission denied for table tokens"),
        ("SELECT secret_sha256 FROM tokens;", "permission denied for table tokens"),
        ("CREATE TABL plg_acme_asset__tags ();", "syntax error"),
    ],
    ids=["no prefix", "another's prefix", "drop", "change", "read", "syntax"],
)
async def test_what_is_not_its_own_is_refused_and_leaves_nothing(
    database: str, write: Write, sql: str, said: str
) -> None:
    """A mistake in somebody's package must not reach tokens or nodes."""
    write(m0001_tags=f"CREATE TABLE plg_acme_asset__first (n int); {sql}")
    with pytest.raises(ConfigRefused) as caught:
        await migrate_plugin(database, ATTESTOR, PACKAGE)
    assert said in str(caught.value)
    assert "attestor acme-asset, migration 0001_tags" in str(caught.value)
    left = await fetch(database, "SELECT relname FROM pg_class WHERE relname LIKE 'plg\\_%\\_\\_%'")
    assert left == []
    assert await fetch(database, "SELECT * FROM plugin_migrations") == []


async def test_file_that_was_edited_after_it_was_applied_is_told(
    database: str, write: Write
) -> None:
    """The database has what the file said then; nobody can tell what the package expects now."""
    write(m0001_tags=TAGS)
    await migrate_plugin(database, ATTESTOR, PACKAGE)
    write(m0001_tags=TAGS + " -- edited")
    with pytest.raises(ConfigRefused, match="0001_tags was applied with another content"):
        await migrate_plugin(database, ATTESTOR, PACKAGE)
    write()
    with pytest.raises(ConfigRefused, match="does not know"):
        await plugin_status(database, ATTESTOR, PACKAGE)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"m0002_tags": TAGS}, "numbered from 0001 without a gap"),
        ({"m0001_tags": TAGS, "m0003_more": TAGS}, "numbered from 0001 without a gap"),
        ({"m1_tags": TAGS}, "1_tags.sql is not named like"),
    ],
)
def test_files_are_numbered(write: Write, files: dict[str, str], said: str) -> None:
    """Or one would be passed over."""
    write(**files)
    with pytest.raises(ConfigRefused, match=said):
        plugin_migrations(ATTESTOR, PACKAGE)


def test_package_without_migrations_and_long_ids_are_told() -> None:
    """What an author forgot to put into the wheel, and names that PostgreSQL would cut."""
    with pytest.raises(ConfigRefused, match="no folder `migrations`"):
        plugin_migrations(ATTESTOR, "no_such_package_at_all")
    with pytest.raises(ConfigRefused, match="at most 40 characters"):
        table_prefix("a" * 41)
    assert table_prefix(ATTESTOR) == "plg_acme_asset__"
