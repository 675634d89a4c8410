"""`watchword db migrate|status`."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from watchword.handlers.store import migrate as migrations
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows
from watchword.streams.wiring.connections import database_url

app = App(name="db", help="The schema of the database.")

_COLUMNS = ("number", "half", "name", "applied")


def _row(migration: migrations.Migration) -> dict[str, object]:
    return {
        "number": migration.number,
        "half": migration.half,
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
    """Bring the database to the schema of this release; harmless when it is there already."""
    url = database_url(options.settings())
    done = await migrations.migrate(url, half="pre" if half == "pre" else None)
    show_rows([_row(migration) for migration in done], _COLUMNS[:3], options.form)
    say(f"{len(done)} applied" if done else "the schema is that of this release already")


@app.command
async def status(*, options: Shown = SHOWN) -> int:
    """List the migrations of this release; exit 1 if the database lacks some."""
    found = await migrations.status(database_url(options.settings()))
    show_rows([_row(migration) for migration in found], _COLUMNS, options.form)
    return 1 if any(migration.applied is None for migration in found) else 0
