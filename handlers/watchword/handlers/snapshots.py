"""Which transactions are visible: snapshots of PostgreSQL as values, and how old what they hide can be.

A snapshot is written `xmin:xmax:xip,xip`: transactions below `xmin` have ended, those from `xmax` on
are not seen, and of those in between the `xip` were running (PostgreSQL, "Transaction ID and
Snapshot Information Functions"). Readers of the journal keep two of them: what became visible
between the two is exactly what they have to handle, however late a transaction ended.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. `running` is sorted, and within `xmin` to `xmax`."""

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the snapshot that PostgreSQL wrote; raises `ValueError` for another form."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))

    def __str__(self) -> str:
        """Write it as PostgreSQL does."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}"

    def sees(self, xid: int) -> bool:
        """Tell whether what this transaction committed is visible."""
        return xid < self.xmax and xid not in self.running

    def up_to(self, xid: int) -> "Snapshot":
        """Return the snapshot that sees of this one only transactions up to `xid`.

        It was never taken, and yet it lies between any snapshot with an `xmax` up to `xid + 1` that
        was taken before, and this one: so a reader may stop there.
        """
        if xid + 1 >= self.xmax:
            return self
        running = tuple(one for one in self.running if one <= xid)
        return Snapshot(min((*running, xid + 1)), xid + 1, running)


@dataclass(frozen=True, slots=True)
class Floor:
    """Bounds of the rows that a snapshot does not see: recorded at `at` or later, with a `seq` above `seq`.

    `at` is a time as PostgreSQL writes it.
    """

    at: str = "-infinity"
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A transaction id, and the time and the last `seq` that were read *before* it was assigned."""

    xid: int
    floor: Floor


@dataclass(frozen=True, slots=True)
class Horizon:
    """Knows a floor for what the newest snapshot hides, however long transactions live.

    Transaction ids are assigned in order. So a snapshot whose `xmin` is above a mark's id hides only
    transactions that began after the mark's floor was read: what they record is later, and their
    `seq` greater. No bound on the life of a transaction is assumed: one that waits for a standby,
    for minutes, only keeps the floor where it is. (`xmax` alone would not do: a transaction that is
    not yet seen may have begun before the snapshot.)
    """

    floor: Floor | None = None
    waiting: Mark | None = None
    newest: Mark | None = None

    def marked(self, mark: Mark) -> "Horizon":
        """Return the horizon after a transaction of ours."""
        if self.waiting is None:
            return replace(self, waiting=mark)
        return replace(self, newest=mark)

    def seen(self, snapshot: Snapshot) -> "Horizon":
        """Return the horizon after a snapshot; its `floor` then holds for that one and all later ones."""
        if self.waiting is None or snapshot.xmin <= self.waiting.xid:
            return self
        return Horizon(self.waiting.floor, self.newest)
