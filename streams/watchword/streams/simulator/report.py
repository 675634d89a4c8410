"""What came of a simulation: counts, waits, and what was not as it should be."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

STEPS = ("join", "renew", "leave")
_SHOWN = 20
_PERCENTILES = (50, 95, 99)

Row = dict[str, object]


@dataclass(slots=True)
class Report:
    """Filled while the simulation runs; `due` counts machines, the rest answers."""

    due: int = 0
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """How often a step of a kind came to an outcome."""
    waits_s: dict[tuple[str, str], list[float]] = field(
        default_factory=dict[tuple[str, str], list[float]]
    )
    mismatches: list[str] = field(default_factory=list[str])
    """Each in a sentence. None of them may be there."""
    running: int = 0

    def came_to(self, kind: str, step: str, outcome: str, wait_s: float) -> None:
        """Note what a step came to, and how long after it was due."""
        self.outcomes[kind, step, outcome] += 1
        self.waits_s.setdefault((kind, step), []).append(wait_s)

    def mismatch(self, number: int, kind: str, step: str, what: str) -> None:
        """Note that something was not as it should be."""
        self.mismatches.append(f"machine {number} ({kind}), {step}: {what}")

    def progress(self, seconds: float) -> str:
        """Return where the simulation is, in a line."""
        joined = sum(
            n for (_, step, out), n in self.outcomes.items() if (step, out) == ("join", "joined")
        )
        answered = sum(n for (_, step, _), n in self.outcomes.items() if step == "join")
        return (
            f"{seconds:6.0f} s  {self.due} came, {self.running} wait, {answered} answered, {joined} joined,"
            f" {len(self.mismatches)} mismatches"
        )

    def rows(self) -> list[Row]:
        """Return the table: a row for each kind and step."""
        rows: list[Row] = []
        for kind, step in sorted(self.waits_s, key=lambda at: (at[0], STEPS.index(at[1]))):
            waits = sorted(self.waits_s[kind, step])
            said = {
                out: n for (k, s, out), n in sorted(self.outcomes.items()) if (k, s) == (kind, step)
            }
            rows.append(
                {
                    "kind": kind,
                    "step": step,
                    "count": len(waits),
                    **{f"p{share}_ms": _ms(percentile(waits, share)) for share in _PERCENTILES},
                    "max_ms": _ms(waits[-1]),
                    "outcomes": ", ".join(f"{out} {n}" for out, n in said.items()),
                }
            )
        return rows

    def complaints(self) -> list[str]:
        """Return the first mismatches, and how many more there are."""
        shown = self.mismatches[:_SHOWN]
        more = len(self.mismatches) - len(shown)
        return [*shown, f"and {more} more"] if more else shown


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the least value that so many percent are not above (nearest rank)."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
