"""The table of a run, and its last line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.faults.fault import Fault, Injection
from tests.faults.judge.findings import Kind
from tests.faults.recovery import Recovery
from tests.faults.round import Result

PROMISED_RATE = 50.0
"""Requests a second, all along."""


@dataclass(slots=True)
class Row:
    """What is known of one fault after some rounds."""

    hits: int = 0
    times: int = 0
    answer_alone_s: float | None = None
    event_alone_s: float | None = None
    answer_in_pairs_s: float | None = None
    event_in_pairs_s: float | None = None
    problems: list[str] = field(default_factory=list[str])

    def add(self, injection: Injection, found: Recovery) -> None:
        """Count one injection."""
        self.times += 1
        self.hits += injection.hits
        if injection.problem:
            self.problems.append(injection.problem)
        if injection.together_with is None:
            self.answer_alone_s = _greater(self.answer_alone_s, found.answer_s)
            self.event_alone_s = _greater(self.event_alone_s, found.event_s)
        else:
            self.answer_in_pairs_s = _greater(self.answer_in_pairs_s, found.answer_s)
            self.event_in_pairs_s = _greater(self.event_in_pairs_s, found.event_s)


@dataclass(slots=True)
class Totals:
    """A run so far, over its rounds; plain enough to be kept as JSON."""

    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    impossible: dict[str, str] = field(default_factory=dict[str, str])
    findings: dict[str, int] = field(default_factory=dict[str, int])
    lines: list[str] = field(default_factory=list[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    explained: int = 0
    to_explain: int = 0
    skips: int = 0
    rates: list[float] = field(default_factory=list[float])
    """Requests a second in each round."""
    least_rates: list[float] = field(default_factory=list[float])
    """The same in the worst ten seconds of each."""
    latest_s: list[float] = field(default_factory=list[float])
    """The longest that a machine came behind its time in each."""

    def add(self, result: Result) -> None:
        """Count one round."""
        for injection, found in zip(result.injections, result.recoveries, strict=True):
            self.rows.setdefault(injection.fault, Row()).add(injection, found)
        self.impossible |= result.impossible
        _count(self.findings, {str(k): n for k, n in result.verdict.findings.counts.items()})
        self.lines += result.verdict.findings.lines()
        _count(self.counts, result.verdict.counts)
        self.explained += result.verdict.explained.done
        self.to_explain += result.verdict.explained.of
        self.skips += result.skips
        self.rates.append(result.pace.rate)
        self.least_rates.append(result.pace.least_rate)
        self.latest_s.append(result.pace.latest_s)

    @property
    def is_loaded(self) -> bool:
        """Whether machines asked as often as promised, in every round."""
        return all(rate >= PROMISED_RATE for rate in self.rates)

    def not_hit(self, faults: Iterable[Fault]) -> list[str]:
        """Return the faults that could be done and were not."""
        return [
            fault.name
            for fault in faults
            if not self.rows.get(fault.name, Row()).hits and fault.name not in self.impossible
        ]


def table(totals: Totals, faults: Sequence[Fault]) -> str:
    """Return one row for each fault: hits, and the worst waits alone, in pairs, and as DESIGN has them."""
    lines = [
        f"{'fault':32} {'hits':>5} {'answers':>9} {'events':>9} {'in pairs':>17} {'DESIGN 6':>9}"
    ]
    for fault in faults:
        row = totals.rows.get(fault.name, Row())
        pairs = f"{_seconds(row.answer_in_pairs_s)} / {_seconds(row.event_in_pairs_s)}"
        line = (
            f"{fault.name:32} {row.hits:5} {_seconds(row.answer_alone_s):>9} "
            f"{_seconds(row.event_alone_s):>9} {pairs:>17} {fault.known or '-':>9}"
        )
        if not row.hits:
            line += f"  NOT HIT: {totals.impossible.get(fault.name) or '; '.join(row.problems) or 'never injected'}"
        lines.append(line)
    counted = ", ".join(f"{count} {name}" for name, count in totals.counts.items())
    lines += ["", f"counted: {counted}"]
    lines.append(f"explained: {totals.explained} of {totals.to_explain} requests")
    lines.append(f"workers that exited rather than skip an offset: {totals.skips}")
    if totals.rates:
        lines.append(
            f"requests a second: {min(totals.rates):.1f}, in the worst ten seconds {min(totals.least_rates):.1f}; "
            f"machines came at most {max(totals.latest_s):.2f} s behind their time"
        )
    return "\n".join(lines)


def last_line(totals: Totals) -> str:
    """Return what the run comes to."""
    injected = sum(row.times for row in totals.rows.values())
    lost, duplicated, wrong = (totals.findings.get(str(kind), 0) for kind in Kind)
    return (
        f"faults: {injected} injected, {totals.counts.get('requests', 0)} requests, "
        f"{totals.counts.get('outcomes', 0)} outcomes, {lost} lost, {duplicated} duplicated, {wrong} wrong"
    )


def _count(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def _greater(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
