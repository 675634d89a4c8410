"""What one relay knows of its shards between two looks. Pure: no clock, no I/O.

While a lease holds, nobody else moves the cursor, so the relay need not read it again: a shard
over which nothing came moves in memory alone, and an idle look writes nothing. Whoever takes over
starts from the stored cursor; between that one and ours there is nothing to publish.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from watchword.handlers.snapshots import Floor
from watchword.handlers.store.relay import Cursor, Interval, Row

_NO_BOUND = 2**63 - 1


@dataclass(frozen=True, slots=True)
class View:
    """The snapshot of one look, what it does not exceed, and what it hides."""

    snapshot: str
    last_seq: int
    floor: Floor | None


@dataclass(slots=True)
class Trouble:
    """A record was rejected: the shard goes alone, record by record, from `retry_at` on (monotonic)."""

    retry_at: float
    delay_s: float
    blocking: Row | None = None
    """The rejected row, once it is known which one it is."""


@dataclass(slots=True)
class Shard:
    """One shard. `cursor` is where we are, `stored` where a successor would start."""

    cursor: Cursor
    stored: Cursor
    batch_end: View | None = None
    """Of an open batch, unless an earlier owner cut it."""
    trouble: Trouble | None = None

    def interval(self, view: View) -> Interval:
        """Return what is next: the rest of the open batch, else all that is visible now."""
        end = view if self.cursor.to_snapshot is None else self.batch_end
        return Interval(
            self.cursor.shard,
            self.cursor.from_snapshot,
            self.cursor.to_snapshot or view.snapshot,
            max(self.cursor.last_seq, self.cursor.floor.seq),
            _NO_BOUND if end is None else end.last_seq,
            self.cursor.floor.at,
        )

    def after(self, view: View, rows: Sequence[Row], *, is_cut: bool) -> "Shard":
        """Return the shard with these rows published; `is_cut` says that the interval may have more."""
        end = view if self.cursor.to_snapshot is None else self.batch_end
        until = self.cursor.to_snapshot or view.snapshot
        if is_cut:
            last_seq = rows[-1].seq if rows else self.cursor.last_seq
            return replace(
                self,
                cursor=replace(self.cursor, to_snapshot=until, last_seq=last_seq),
                batch_end=end,
            )
        # A batch without rows left is closed: a relay that forgets it reads nothing for ever.
        floor = self.cursor.floor if end is None or end.floor is None else end.floor
        return replace(
            self,
            cursor=Cursor(self.cursor.shard, self.cursor.epoch, until, floor),
            batch_end=None,
        )


@dataclass(slots=True)
class Wave:
    """What one look found. `read` are the shards that were looked at, with rows or without."""

    view: View
    read: list[int]
    rows: list[Row] = field(default_factory=list[Row])
    cut: set[int] = field(default_factory=set[int])


class Shards:
    """The shards that a relay holds."""

    def __init__(self) -> None:
        """Hold none."""
        self.owned: dict[int, Shard] = {}
        self._front = ""

    def hold(self, cursors: Iterable[Cursor]) -> None:
        """Take what a lease gave: what we had under the same epoch stays where it is in memory."""
        had = self.owned
        self.owned = {}
        for cursor in cursors:
            known = had.get(cursor.shard)
            if known is None or known.cursor.epoch != cursor.epoch:
                known = Shard(cursor, cursor)
            self.owned[cursor.shard] = known

    def drop(self, shards: Iterable[int]) -> None:
        """Forget shards that were lost."""
        for shard in shards:
            self.owned.pop(shard, None)

    def clear(self) -> None:
        """Forget everything, because the lease is uncertain."""
        self.owned = {}

    def in_step(self) -> list[int]:
        """Return the healthy shards that are at the front, so that one query reads them all."""
        return [
            number
            for number, shard in self.owned.items()
            if shard.trouble is None
            and shard.cursor.to_snapshot is None
            and shard.cursor.from_snapshot == self._front
        ]

    def behind(self) -> list[int]:
        """Return the other healthy shards."""
        front = set(self.in_step())
        return [n for n, s in self.owned.items() if s.trouble is None and n not in front]

    def troubled(self, now: float) -> list[int]:
        """Return the shards with a rejected record whose turn it is (`now` is monotonic)."""
        return [
            n for n, s in self.owned.items() if s.trouble is not None and s.trouble.retry_at <= now
        ]

    @property
    def front(self) -> str:
        """The snapshot up to which the shards in step are published."""
        return self._front

    def floor_at(self, shards: Iterable[int]) -> str:
        """Return a time before all that the front hides; those in step have nearly the same."""
        return min(
            (self.owned[n].cursor.floor.at for n in shards),
            key=lambda at: (at != "-infinity", at),
            default="-infinity",
        )

    def advanced(self, wave: Wave, published: Iterable[int]) -> list[Shard]:
        """Return how shards stand that are published as far as the wave goes; nothing is changed yet."""
        by_shard: dict[int, list[Row]] = {n: [] for n in published}
        for row in wave.rows:
            if row.shard in by_shard:
                by_shard[row.shard].append(row)
        return [
            self.owned[n].after(wave.view, rows, is_cut=n in wave.cut)
            for n, rows in by_shard.items()
            if n in self.owned
        ]

    def settle(self, shards: Iterable[Shard], *, are_stored: bool) -> None:
        """Take shards as they are now; `are_stored` says that PostgreSQL knows."""
        for shard in shards:
            self.owned[shard.cursor.shard] = (
                replace(shard, stored=shard.cursor) if are_stored else shard
            )

    def reached(self, view: View) -> None:
        """Make this look the front."""
        self._front = view.snapshot

    def unstored(self) -> list[Shard]:
        """Return the shards whose stored cursor is behind the one in memory."""
        return [s for s in self.owned.values() if s.cursor != s.stored]
