"""What is kept of a run, so that it can go on after an interruption."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.report import Row, Totals
from tests.support.folders import ROOT

RUNS = ROOT / "build" / "faults"


@dataclass(slots=True)
class State:
    """A run: what it was asked to do, and which rounds are done."""

    run: str
    seconds: float
    seed: int
    done: int = 0
    """Rounds that were judged."""
    totals: Totals = field(default_factory=Totals)

    @property
    def folder(self) -> Path:
        """Where everything of the run lies."""
        return RUNS / self.run

    def save(self) -> None:
        """Write it, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "state.json.partial"
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.rename(self.folder / "state.json")

    @classmethod
    def load(cls, run: str) -> "State":
        """Read a run that was begun.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        raw = json.loads((RUNS / run / "state.json").read_text())
        kept = raw.pop("totals")
        rows = {name: Row(**row) for name, row in kept.pop("rows").items()}
        totals = Totals(rows=rows, **kept)
        return cls(**raw, totals=totals)
