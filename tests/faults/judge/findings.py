"""What the judge found, counted in three kinds."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_SHOWN_EACH = 8


class Kind(StrEnum):
    """What is the matter."""

    LOST = "lost"
    """Something that was promised is missing: an outcome, an answer, an event, a dead letter."""
    DUPLICATED = "duplicated"
    """Something that may be once is twice: an admission, a spend, a refusal's record."""
    WRONG = "wrong"
    """Something is there and is not what it must be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as promised."""

    kind: Kind
    check: str
    detail: str


class Findings:
    """Collects findings; bounded in what it shows, exact in what it counts."""

    def __init__(self) -> None:
        """Find nothing yet."""
        self.counts: Counter[Kind] = Counter()
        self.checks: Counter[tuple[Kind, str]] = Counter()
        self.shown: list[Finding] = []

    def add(self, kind: Kind, check: str, detail: object = "") -> None:
        """Note one finding."""
        self.counts[kind] += 1
        self.checks[kind, check] += 1
        if self.checks[kind, check] <= _SHOWN_EACH:
            self.shown.append(Finding(kind, check, str(detail)))

    def lost(self, check: str, detail: object = "") -> None:
        """Note that something is missing."""
        self.add(Kind.LOST, check, detail)

    def duplicated(self, check: str, detail: object = "") -> None:
        """Note that something is there too often."""
        self.add(Kind.DUPLICATED, check, detail)

    def wrong(self, check: str, detail: object = "") -> None:
        """Note that something is not what it must be."""
        self.add(Kind.WRONG, check, detail)

    def each(self, kind: Kind, check: str, details: Iterable[object]) -> None:
        """Note one finding for each detail."""
        for detail in details:
            self.add(kind, check, detail)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.counts.total()

    def lines(self) -> list[str]:
        """Return what was found for a person to read, the most frequent check first."""
        lines: list[str] = []
        for (kind, check), count in self.checks.most_common():
            lines.append(f"{kind.upper()} {check}: {count}")
            lines += [f"    {f.detail}" for f in self.shown if (f.kind, f.check) == (kind, check)]
        return lines


def merge(into: Findings, others: Findings) -> None:
    """Add what others found."""
    into.counts.update(others.counts)
    into.checks.update(others.checks)
    into.shown += others.shown
