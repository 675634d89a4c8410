"""`watchword db migrate|status|attestor-role`."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from watchword.handlers.store import migrate as migrations
from watchword.handlers.store import plugin_migrations
from watchword.handlers.store.author_roles import create_author_role
from watchword.handlers.store.plugin_migrations import PluginMigration
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows
from watchword.streams.wiring.attestors import packages_with_tables
from watchword.streams.wiring.connections import database_url, open_database

app = App(name="db", help="The schema of the database.")

_COLUMNS = ("attestor", "number", "half", "name", "applied")


def _row(migration: migrations.Migration) -> dict[str, object]:
    return {
        "attestor": None,
        "number": migration.number,
        "half": migration.half,
        "name": migration.name,
        "applied": migration.applied,
    }


def _plugin_row(migration: PluginMigration) -> dict[str, object]:
    return {
        "attestor": migration.attestor,
        "number": migration.number,
        "half": "pre",
        "name": migration.name,
        "applied": migration.applied,
    }


@app.command
async def migrate(
    *,
    half: Annotated[
        Literal["pre", "all"],
        Parameter(help="`pre` is for before the new release starts: the last one runs on it."),
    ] = "all",
    options: Shown = SHOWN,
) -> None:
    """Bring the database to the schema of this release; harmless when it is there already.

    Then the tables of those attestors of other packages that `attestors.enabled` names, each under a
    role of its own: our user has to be allowed to make roles.
    """
    settings = options.settings()
    url = database_url(settings)
    packages = packages_with_tables(settings)
    done = [_row(m) for m in await migrations.migrate(url, half="pre" if half == "pre" else None)]
    for attestor, package in packages:
        applied = await plugin_migrations.migrate_plugin(url, attestor, package)
        done += [_plugin_row(migration) for migration in applied]
    show_rows(done, _COLUMNS[:4], options.form)
    say(f"{len(done)} applied" if done else "the schema is that of this release already")


@app.command
async def status(*, options: Shown = SHOWN) -> int:
    """List the migrations of this release, and what a newer one has applied; exit 1 if the database lacks some."""
    settings = options.settings()
    url = database_url(settings)
    found = [_row(migration) for migration in await migrations.status(url)]
    for attestor, package in packages_with_tables(settings):
        theirs = await plugin_migrations.plugin_status(url, attestor, package)
        found += [_plugin_row(migration) for migration in theirs]
    show_rows(found, _COLUMNS, options.form)
    return 1 if any(row["applied"] is None for row in found) else 0


@app.command(name="attestor-role")
async def attestor_role(
    attestor: Annotated[str, Parameter(help="The id of an attestor that brings its own SQL.")],
    /,
    *,
    worker: Annotated[
        str | None,
        Parameter(help="The user that workers log in with, if it is another than this command's."),
    ] = None,
    options: Shown = SHOWN,
) -> None:
    """Make the role that an attestor's own SQL runs with; harmless when it is there already.

    It may insert into `watchword.attestation_uses` and read nothing of ours. Grant it what the attestor
    needs: its own tables, say. Without the role no worker starts that has such an attestor enabled.
    """
    settings = options.settings()
    async with open_database(settings, "cli") as database:
        role = await create_author_role(database, attestor, worker=worker)
    show_one({"attestor": attestor, "role": role}, options.form)
