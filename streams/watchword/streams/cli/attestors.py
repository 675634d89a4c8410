"""`watchword attestors list|check|new`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from watchword.streams.cli import exits
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows
from watchword.streams.cli.skeleton_files import write_skeleton
from watchword.streams.wiring.attestors import BUILT_IN
from watchword.streams.wiring.found_attestors import (
    check_attestors,
    found_attestors,
    without_table,
)

app = App(
    name="attestors", help="Ways to prove what a machine is: ours, and those of other packages."
)

_COLUMNS = ("id", "state", "version", "roles", "distribution", "distribution_version", "problem")


@app.command(name="list")
def list_(*, options: Shown = SHOWN) -> None:
    """List what is installed: from which distribution, its roles and reasons, and why one is skipped.

    Packages register attestors as entry points of the group `watchword.attestors`; a worker has those that
    `attestors.enabled` names. To list a package's attestor its code is imported, as a worker would.
    """
    rows = [found.row() for found in found_attestors(options.settings())]
    show_rows(rows, _COLUMNS, options.form)


@app.command
def check(*, options: Shown = SHOWN) -> int:
    """Load what `attestors.enabled` names, as a worker would; exit 2 and say why if it would not start."""
    settings = options.settings()
    problems = check_attestors(settings)
    show_rows([{"problem": problem} for problem in problems], ("problem",), options.form)
    for name in without_table(settings):
        say(f"{name} has no table [attestors.{name}]: it may admit nobody")
    if not problems:
        say("a worker would start with these attestors")
    return exits.USAGE if problems else exits.OK


@app.command
def new(
    name: Annotated[str, Parameter(help="The attestor's id, such as acme-asset.")],
    /,
    *,
    folder: Annotated[Path, Parameter(help="Where the package's folder is made.")] = Path(),
) -> None:
    """Write a package with a working attestor and its tests, to go on from."""
    made = write_skeleton(name, folder, BUILT_IN | {"join-token"})
    say(f"{made} is written; its tests pass: cd {made} && python -m pytest")
