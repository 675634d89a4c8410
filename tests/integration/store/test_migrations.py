"""A release on a schema that is not quite its own: behind it, ahead of it by one half, or out of its reach."""

import asyncpg
import pytest

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import migrate, migrations, status
from watchword.streams.wiring.database_watch import DatabaseWatch

pytestmark = pytest.mark.postgres

_NEXT = len(migrations()) + 1


async def _newer(dsn: str, half: str) -> None:
    """Note down one migration more, as the next release does when it has applied it."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "INSERT INTO watchword.migrations (number, half, name, sha256) VALUES ($1, $2, 'next', 'x')",
            _NEXT,
            half,
        )
    finally:
        await connection.close()


async def _watched(dsn: str) -> DatabaseWatch:
    """Return the watch of a worker that starts on this database, after its first look."""
    database = Database(dsn, application_name="watch")
    try:
        watch = DatabaseWatch(database, dsn)
        await watch.look()
    finally:
        await database.close()
    return watch


async def test_worker_starts_again_in_the_middle_of_its_successors_upgrade(database: str) -> None:
    """From `db migrate --half pre` until its turn comes it may crash, be moved or be rolled back to: it has to judge."""
    await _newer(database, "pre")

    watch = await _watched(database)

    assert watch.problem() is None
    assert await migrate(database) == []
    newer = [(one.number, one.name) for one in await status(database) if one.is_newer]
    assert newer == [(_NEXT, "next")]


async def test_worker_does_not_start_where_its_successor_has_taken_away_what_it_uses(
    database: str,
) -> None:
    """After `post` an old worker would fail in the middle of a join, or write what nobody reads any more."""
    await _newer(database, "post")

    with pytest.raises(ConfigRefused, match=f"does not know: .{_NEXT}."):
        await _watched(database)
    with pytest.raises(ConfigRefused, match="does not know"):
        await migrate(database)


async def test_migration_that_was_changed_after_it_was_applied_is_noticed(database: str) -> None:
    """Two databases of one release would differ, and nobody would know in what."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("UPDATE watchword.migrations SET sha256 = 'x' WHERE number = 3")
    finally:
        await connection.close()

    with pytest.raises(ConfigRefused, match="migration 3 was applied with another content"):
        await status(database)
