"""What a run found: rows of a table, and `build/bench.json`."""

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import ge, le
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """What a value, or its ratio to the floor, should be."""

    compare: Callable[[float, float], bool]
    bound: float
    of_ratio: bool = False

    def is_met(self, measure: "Measure") -> bool:
        """Tell whether a measure is as it should be."""
        found = measure.ratio if self.of_ratio else measure.value
        return found is not None and self.compare(found, self.bound)

    def __str__(self) -> str:
        """Return it as a person writes it: `≤ 1.8 x` or `≥ 2400`."""
        sign = "≤" if self.compare is le else "≥"
        return f"{sign} {self.bound:g}{' x' if self.of_ratio else ''}"


def at_most(bound: float) -> Target:
    """Return the target of a value that should be small."""
    return Target(le, bound)


def at_least(bound: float) -> Target:
    """Return the target of a value that should be large."""
    return Target(ge, bound)


def at_most_times(bound: float) -> Target:
    """Return the target of a cost, in multiples of the floor."""
    return Target(le, bound, of_ratio=True)


def at_least_times(bound: float) -> Target:
    """Return the target of a rate, in multiples of what it is compared with."""
    return Target(ge, bound, of_ratio=True)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number. `floor` is what it is compared with: the crypto of a join, or the rate of joins."""

    name: str
    metric: str
    value: float
    unit: str
    floor: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """The value in multiples of the floor."""
        return self.value / self.floor if self.floor else None

    def as_json(self) -> dict[str, object]:
        """Return the object that stands in `bench.json`."""
        ratio = self.ratio
        return {
            "name": self.name,
            "metric": self.metric,
            "value": round(self.value, 3),
            "unit": self.unit,
            "floor": None if self.floor is None else round(self.floor, 3),
            "ratio": None if ratio is None else round(ratio, 3),
        }


def load_averages() -> str:
    """Return how busy the machine is, for a figure means little without it."""
    return "load averages " + ", ".join(f"{load:.2f}" for load in os.getloadavg())


def write(measures: Sequence[Measure], path: Path) -> None:
    """Write `bench.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n  ".join(json.dumps(measure.as_json()) for measure in measures)
    path.write_text(f"[\n  {rows}\n]\n", encoding="utf-8")


def read(path: Path) -> list[Measure]:
    """Return what `write` wrote, without targets."""
    return [
        Measure(row["name"], row["metric"], row["value"], row["unit"], row["floor"])
        for row in json.loads(path.read_text(encoding="utf-8"))
    ]


def table(measures: Iterable[Measure]) -> str:
    """Return the table in Markdown; it reads well in a terminal too."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    rows += [_cells(measure) for measure in measures]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    rule = ["-" * (width + (at not in _NUMBERS)) for at, width in enumerate(widths)]
    marked = ["-" + line + (":" if at in _NUMBERS else "") for at, line in enumerate(rule)]
    return "\n".join([lines[0], "|" + "|".join(marked) + "|", *lines[1:]])


_HEADINGS = ("name", "metric", "value", "unit", "floor", "ratio", "target", "")
_NUMBERS = frozenset((2, 4, 5))


def _cells(measure: Measure) -> tuple[str, ...]:
    target = measure.target
    verdict = "" if target is None else "met" if target.is_met(measure) else "MISSED"
    ratio = measure.ratio
    return (
        measure.name,
        measure.metric,
        _digits(measure.value),
        measure.unit,
        "" if measure.floor is None else _digits(measure.floor),
        "" if ratio is None else f"{ratio:.2f}",
        "" if target is None else str(target),
        verdict,
    )


def _digits(value: float) -> str:
    """Return three significant digits, and no fewer before the point than there are."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
