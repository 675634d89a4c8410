"""`watchword kinds list`."""

from cyclopts import App

from watchword.handlers.kinds import BUILT_IN, registry
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import show_rows

app = App(name="kinds", help="Kinds of commands that nodes can be told.")


@app.command(name="list")
def list_(*, options: Shown = SHOWN) -> None:
    """List the registered kinds: the built-in ones, and those of `deployment.kinds`."""
    own = options.settings().deployment.kinds
    rows = [
        {"kind": kind, "registered_by": "watchword" if kind in BUILT_IN else "deployment.kinds"}
        for kind in sorted(registry(own))
    ]
    show_rows(rows, ("kind", "registered_by"), options.form)
