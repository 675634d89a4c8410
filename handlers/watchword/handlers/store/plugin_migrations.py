"""Attestors' own tables: `plg_<id>__*`, from the folder `migrations` of the package that an attestor names.

Files are `NNNN_subject.sql`, numbered from 1 without a gap; each runs once, in a transaction, and is never
edited afterwards. They run as the attestor's role, which cannot touch a table of ours; what they make has to
be named for the attestor.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import Any

import asyncpg

from watchword.handlers.definition import MOST_ID_CHARACTERS_WITH_SQL, author_role
from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store.author_roles import make_role
from watchword.handlers.store.connection import Connection, hang_up
from watchword.handlers.store.translate import translated
from watchword.schemas.requests import ATTESTOR_ID

_FILE = re.compile(r"(\d{4})_([a-z0-9_]{1,60})\.sql")
_LOCK = 0x706C675F6D696772
"""The advisory lock that keeps two migrations of attestors apart (`plg_migr` in ASCII)."""

_BOOTSTRAP = """
CREATE TABLE IF NOT EXISTS watchword.plugin_migrations (
    attestor text NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (attestor, number)
)
"""

_MADE = """
SELECT c.relname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
WHERE n.nspname = 'watchword' AND r.rolname = $1 AND NOT starts_with(c.relname, $2)
UNION ALL
SELECT p.proname FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_roles r ON r.oid = p.proowner
WHERE n.nspname = 'watchword' AND r.rolname = $1 AND NOT starts_with(p.proname, $2)
ORDER BY 1
"""
"""What a role owns that is not named for its attestor."""


@dataclass(frozen=True, slots=True)
class PluginMigration:
    """One file. `applied` is None for what the database does not have yet."""

    attestor: str
    number: int
    name: str
    sha256: str
    sql: str
    applied: str | None = None


def table_prefix(attestor: str) -> str:
    """Return what the names of an attestor's own tables begin with: `acme-asset` has `plg_acme_asset__`."""
    return f"{role_of(attestor)}__"


def role_of(attestor: str) -> str:
    """Return the role that an attestor's own SQL and migrations run as.

    Raises:
        ConfigRefused: that is no attestor's id, or too long for the names of tables.
    """
    if not ATTESTOR_ID.fullmatch(attestor) or len(attestor) > MOST_ID_CHARACTERS_WITH_SQL:
        message = (
            f"{attestor!r:.80}: the id of an attestor with tables has at most"
            f" {MOST_ID_CHARACTERS_WITH_SQL} characters of a DNS label"
        )
        raise ConfigRefused([message])
    return author_role(attestor)


def plugin_migrations(attestor: str, package: str) -> list[PluginMigration]:
    """Return the files of a package in order.

    Raises:
        ConfigRefused: the package has no such folder, or its files are not numbered from 1 without a gap.
    """
    role_of(attestor)
    try:
        folder = resources.files(package) / "migrations"
        files = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    except (ModuleNotFoundError, OSError) as error:
        message = f"attestor {attestor}: {package} has no folder `migrations`: {error}"
        raise ConfigRefused([message]) from error
    found: list[PluginMigration] = []
    problems: list[str] = []
    for file in files:
        match = _FILE.fullmatch(file.name)
        if match is None:
            if file.name.endswith(".sql"):
                problems.append(f"attestor {attestor}: {file.name} is not named like 0001_tags.sql")
            continue
        text = file.read_text(encoding="utf-8")
        digest = sha256(text.encode()).hexdigest()
        found.append(PluginMigration(attestor, int(match[1]), match[2], digest, text))
    if not problems and [one.number for one in found] != list(range(1, len(found) + 1)):
        problems.append(f"attestor {attestor}: migrations are numbered from 0001 without a gap")
    if problems:
        raise ConfigRefused(problems)
    return found


async def plugin_status(dsn: str, attestor: str, package: str) -> list[PluginMigration]:
    """Return every migration of an attestor, with the time it was applied.

    Raises:
        ConfigRefused: an applied file has another content now, or the database is newer than the package.
        StoreUnavailable: PostgreSQL is away.
    """
    async with translated():
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute(_BOOTSTRAP)
            return await _compared(connection, attestor, package)
        finally:
            await hang_up(connection)


async def migrate_plugin(dsn: str, attestor: str, package: str) -> list[PluginMigration]:
    """Apply what is missing of an attestor's migrations, and return it. Ours come first.

    The attestor's role is made if it is not there, and the user of `dsn` may take it on from then on.

    Raises:
        ConfigRefused: a file has another content now, makes something that is not named for the attestor, or
            does what its role may not; nothing of that file stays.
        StoreUnavailable: PostgreSQL is away.
    """
    role = role_of(attestor)
    async with translated():
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
            await connection.execute(_BOOTSTRAP)
            missing = [
                one for one in await _compared(connection, attestor, package) if one.applied is None
            ]
            if missing:
                async with connection.transaction():
                    await make_role(connection, role)
            for one in missing:
                await _apply(connection, one, role)
            return missing
        finally:
            await hang_up(connection)


async def _apply(connection: Connection, migration: PluginMigration, role: str) -> None:
    what = f"attestor {migration.attestor}, migration {migration.number:04}_{migration.name}"
    try:
        async with connection.transaction():
            await connection.execute(
                "SET LOCAL lock_timeout = '4s'; SET LOCAL statement_timeout = '15min';"
                " SET LOCAL search_path = watchword, pg_catalog"
            )
            await connection.execute(f"GRANT CREATE ON SCHEMA watchword TO {role}")
            await connection.execute(f"SET LOCAL ROLE {role}")
            await connection.execute(migration.sql)
            await connection.execute("RESET ROLE")
            await connection.execute(f"REVOKE CREATE ON SCHEMA watchword FROM {role}")
            if foreign := await connection.fetch(_MADE, role, table_prefix(migration.attestor)):
                names = ", ".join(str(row[0]) for row in foreign)
                message = (
                    f"{what} makes {names}: names begin with {table_prefix(migration.attestor)}"
                )
                raise ConfigRefused([message])
            await connection.execute(
                "INSERT INTO watchword.plugin_migrations (attestor, number, name, sha256)"
                " VALUES ($1, $2, $3, $4)",
                migration.attestor,
                migration.number,
                migration.name,
                migration.sha256,
            )
    except asyncpg.SyntaxOrAccessError as error:
        raise ConfigRefused([f"{what}: {error}"]) from error


async def _compared(connection: Connection, attestor: str, package: str) -> list[PluginMigration]:
    rows: Sequence[Any] = await connection.fetch(
        "SELECT number, sha256, applied_at::text AS applied FROM watchword.plugin_migrations"
        " WHERE attestor = $1",
        attestor,
    )
    applied = {row["number"]: row for row in rows}
    files = plugin_migrations(attestor, package)
    problems = [
        f"attestor {attestor}: migration {one.number:04}_{one.name} was applied with another content"
        for one in files
        if one.number in applied and applied[one.number]["sha256"] != one.sha256
    ]
    if unknown := sorted(set(applied) - {one.number for one in files}):
        problems.append(
            f"attestor {attestor}: the database has migrations that this version does not know: {unknown}"
        )
    if problems:
        raise ConfigRefused(problems)
    return [
        PluginMigration(
            one.attestor,
            one.number,
            one.name,
            one.sha256,
            one.sql,
            applied[one.number]["applied"] if one.number in applied else None,
        )
        for one in files
    ]
