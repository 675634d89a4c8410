"""`watchword config show`."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from watchword.streams import logs
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import show_rows
from watchword.streams.settings import load, shown

app = App(name="config", help="The configuration as it was read.")


@app.command
def show(
    *,
    redacted: Annotated[
        bool, Parameter(help="Said for the reader's sake: secrets never show.", negative="")
    ] = True,
    options: Shown = SHOWN,
) -> None:
    """Print every value and where it came from; secrets only say that they are set."""
    del redacted
    logs.configure(log_format="console", level="WARNING")
    rows: list[dict[str, Any]] = [
        {"name": found.name, "value": found.value, "source": found.source}
        for found in shown(load(file=options.config))
    ]
    show_rows(rows, ("name", "source", "value"), options.form)
