"""Whether it stayed as it was: from the end of the warm-up to the end."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.soak.samples import (
    CONNECTIONS,
    HANDLES,
    LAG,
    MEMORY,
    WAITING,
    Samples,
    Series,
)


@dataclass(frozen=True, slots=True)
class Flat:
    """By how much a figure may have grown."""

    share: float
    amount: float

    def holds(self, warm: float, end: float) -> bool:
        """Tell whether it stayed within that."""
        return end <= warm * (1.0 + self.share) + self.amount


_BOUNDS: Mapping[str, Flat] = {
    MEMORY: Flat(0.10, 8.0),
    HANDLES: Flat(0.10, 8.0),
    CONNECTIONS: Flat(0.10, 8.0),
    LAG: Flat(0.0, 2.0),
    WAITING: Flat(0.0, 2.0),
}
"""Sizes of tables have none: nodes, their certificates and the journal are there to stay."""

_SHARE = 0.1
"""The part of the run that each figure is the median of."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    series: Series
    start: float
    warm: float
    end: float

    @property
    def is_flat(self) -> bool | None:
        """Whether it is, or None if it need not be."""
        bound = _BOUNDS.get(self.series.what)
        return None if bound is None else bound.holds(self.warm, self.end)


def lines(samples: Samples, warm_s: float) -> list[Line]:
    """Return start, warm-up, end of each series."""
    last = samples.taken[-1].at_s
    span = max(_SHARE * last, 1.0)
    found: list[Line] = []
    for series in samples.series:
        start = samples.figure(series, 0.0, span)
        warm = samples.figure(series, warm_s, warm_s + span)
        end = samples.figure(series, last - span, last)
        if start is None or warm is None or end is None:
            continue  # A partition that came or went meanwhile.
        found.append(Line(series, start, warm, end))
    return found


def table(found: list[Line]) -> str:
    """Return the table."""
    head = f"{'what':34} {'of':20} {'start':>10} {'warm':>10} {'end':>10} {'growth':>10}"
    rows = [head]
    for line in found:
        if line.series.what not in _BOUNDS and line.end < 1.0 and line.start < 1.0:
            continue  # Empty tables.
        mark = {None: "", True: "  flat", False: "  GROWS"}[line.is_flat]
        rows.append(
            f"{line.series.what:34} {line.series.of:20} {_figure(line.start)} {_figure(line.warm)} "
            f"{_figure(line.end)} {_figure(line.end - line.warm)} {line.series.unit:3}{mark}"
        )
    return "\n".join(rows)


def _figure(value: float) -> str:
    return f"{value:10.1f}" if abs(value) < 100_000 else f"{value:10.0f}"
