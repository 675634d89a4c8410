"""`watchword rebuild --check`."""

from typing import Annotated

from cyclopts import Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.store import rebuild as rebuilding
from watchword.streams.cli.acting import operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows


async def rebuild(
    *,
    check: Annotated[
        bool, Parameter(help="Compare, and change nothing. The only way there is.", negative="")
    ] = False,
    options: Shown = SHOWN,
) -> int:
    """Fold the journal into empty tables and compare them with the real ones; exit 1 if they differ."""
    if not check:
        message = "say --check: tables are compared, never written"
        raise BadArgument(message)
    async with operating(options) as (_, database):
        found = await rebuilding.check(database)
    rows = [
        {
            "table": difference.table,
            "only_in_table": difference.only_in_table,
            "only_in_journal": difference.only_in_journal,
            "keys": list(difference.keys),
        }
        for difference in found.differences
    ]
    show_rows(rows, ("table", "only_in_table", "only_in_journal", "keys"), options.form)
    for problem in found.problems:
        say(problem)
    say(f"{found.events} events, {sum(found.rows.values())} rows in {len(found.rows)} tables")
    return 1 if found.differences or found.problems else 0
