"""Bring a database to the schema of this release: plain SQL, forward only, in two halves.

Files are `NNNN_pre_subject.sql` and `NNNN_post_subject.sql`. `pre` runs before the new release
starts (the last release goes on working on it, and starts on it), `post` when the last release is gone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import resources
from typing import Literal

import asyncpg

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store.connection import hang_up
from watchword.handlers.store.translate import translated

Half = Literal["pre", "post"]

_NAME = re.compile(r"(\d{4})_(pre|post)_([a-z0-9_]+)\.sql")
_LOCK = 0x7761746368776F72
"""The advisory lock that keeps two migrations apart (`watchwor` in ASCII)."""

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS watchword;
CREATE TABLE IF NOT EXISTS watchword.migrations (
    number integer PRIMARY KEY,
    half text NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `applied` is None for what the database does not have yet."""

    number: int
    half: Half
    name: str
    sha256: str
    sql: str
    """Empty for one of a newer release."""
    applied: str | None = None
    is_newer: bool = False
    """The database has it, and this release does not: its successor's upgrade has begun."""


def migrations() -> list[Migration]:
    """Return the files of this release in order; numbers are contiguous from 1."""
    found: list[Migration] = []
    folder = resources.files("watchword.handlers.store") / "migrations"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if match := _NAME.fullmatch(file.name):
            text = file.read_text(encoding="utf-8")
            half: Half = "pre" if match[2] == "pre" else "post"
            found.append(
                Migration(int(match[1]), half, match[3], sha256(text.encode()).hexdigest(), text)
            )
    return found


async def status(dsn: str) -> list[Migration]:
    """Return every migration of this release with the time it was applied, then what a newer one has applied.

    Raises:
        ConfigRefused: an applied file has another content now, or the `post` half of a newer release was applied.
        StoreUnavailable: PostgreSQL is away.
    """
    async with translated():
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute(_BOOTSTRAP)
            return await _compared(connection)
        finally:
            await hang_up(connection)


async def migrate(dsn: str, *, half: Half | None = None) -> list[Migration]:
    """Apply what is missing, each file in a transaction of its own, and return what was applied.

    `half="pre"` stops before the first missing `post` file. Two processes that migrate at once wait
    for each other. A statement that waits for a lock gives up after 4 s, so that traffic goes on.

    Raises:
        ConfigRefused: an applied file has another content now, or the `post` half of a newer release was applied.
        StoreUnavailable: PostgreSQL is away.
    """
    async with translated():
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
            await connection.execute(_BOOTSTRAP)
            done: list[Migration] = []
            for migration in await _compared(connection):
                if migration.applied is not None:
                    continue
                if half == "pre" and migration.half == "post":
                    break
                await _apply(connection, migration)
                done.append(migration)
            return done
        finally:
            await hang_up(connection)


async def _apply(connection: "asyncpg.Connection[asyncpg.Record]", migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(
            "SET LOCAL lock_timeout = '4s'; SET LOCAL statement_timeout = '15min'"
        )
        await connection.execute("SET LOCAL search_path = watchword, pg_catalog")
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO watchword.migrations (number, half, name, sha256) VALUES ($1, $2, $3, $4)",
            migration.number,
            migration.half,
            migration.name,
            migration.sha256,
        )


async def _compared(connection: "asyncpg.Connection[asyncpg.Record]") -> list[Migration]:
    rows = await connection.fetch(
        "SELECT number, half, name, sha256, applied_at::text AS applied FROM watchword.migrations ORDER BY number"
    )
    ours = {m.number: m for m in migrations()}
    applied = {
        row["number"]: Migration(
            row["number"],
            row["half"],
            row["name"],
            row["sha256"],
            "",
            row["applied"],
            is_newer=row["number"] not in ours,
        )
        for row in rows
    }
    if problems := _problems(ours, applied):
        raise ConfigRefused(problems)
    return [
        replace(m, applied=applied[m.number].applied if m.number in applied else None)
        for m in ours.values()
    ] + [m for m in applied.values() if m.is_newer]


def _problems(ours: Mapping[int, Migration], applied: Mapping[int, Migration]) -> list[str]:
    """Return why this release cannot work on what was applied.

    With its first half a newer release leaves us all that we use, also when we start again in the middle of its
    upgrade; its second half takes away what only we have used.
    """
    problems = [
        f"migration {number} was applied with another content"
        for number, m in ours.items()
        if number in applied and applied[number].sha256 != m.sha256
    ]
    newer = [m for m in applied.values() if m.is_newer]
    if any(m.half != "pre" for m in newer):
        numbers = [m.number for m in newer]
        problems.append(f"the database has migrations that this release does not know: {numbers}")
    return problems
