"""What a person sees of a run: in colour on a terminal, plain lines elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from watchword.streams.dev.expectations import JOINED, Machine
from watchword.streams.dev.verdict import Check


class Stage:
    """Writes to standard output; honours NO_COLOR, and is plain where no terminal is."""

    def __init__(self) -> None:
        """Look at what standard output is."""
        self._console = Console(highlight=False, soft_wrap=True)

    def step(self, text: str, seconds: float | None = None) -> None:
        """Say what has been done."""
        took = "" if seconds is None else f"  {seconds:.1f} s"
        self._console.print(Text.assemble(("• ", "bold cyan"), text, (took, "dim")))

    def line(self, text: str = "") -> None:
        """Say something."""
        self._console.print(Text(text))

    def told(self, machine: Machine, seconds: float) -> None:
        """Say what a machine was told."""
        style = "green" if machine.seen == JOINED else "yellow"
        if (machine.seen == JOINED) != (machine.expected == JOINED):
            style = "bold red"
        self._console.print(
            Text.assemble(
                ("machine  ", "dim"),
                machine.name.ljust(14),
                f"{machine.way:8} ",
                (_plain(machine.seen).ljust(10), style),
                (f"{seconds:5.2f} s", "dim"),
            )
        )

    def event(self, body: Mapping[str, Any]) -> None:
        """Show an event as its consumers see it."""
        kind = str(body.get("type", ""))
        if kind == "node.joined":
            what, style = f"{body['tenant']}/{body['pool']} node {body['nodeId']}", "green"
        elif kind == "security.join.refused.window":
            what = f"{body['refusal']}: {body['suppressed']} held back"
            style = "magenta"
        else:
            # An alert about several reasons has no refusal of its own; what happened to a node has a node.
            subject = body.get("refusal") or body.get("nodeId") or body.get("kind") or ""
            severity = f" ({body['severity']})" if body.get("severity") else ""
            what, style = f"{subject}{severity} tenant {body.get('tenant')}".strip(), "yellow"
        self._console.print(
            Text.assemble(("event    ", "dim"), (kind.ljust(29), style), _plain(what))
        )

    def verdict(self, checks: Sequence[Check]) -> None:
        """Show what was promised and what was kept."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            mark = Text("kept", "green") if check.kept else Text("BROKEN", "bold red")
            table.add_row(mark, Text(check.promise))
            for problem in check.problems:
                table.add_row("", Text(_plain(problem), "red"))
        self._console.print(table)


def _plain(value: object) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
