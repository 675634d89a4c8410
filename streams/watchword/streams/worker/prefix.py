"""Which offsets of a partition are done without a hole: pure, and the only thing that is committed."""

from dataclasses import dataclass

from watchword.handlers.errors import WatchwordError


class OffsetSkipped(WatchwordError):
    """Kafka's client delivered an offset above the one that was due."""

    def __init__(self, expected: int, delivered: int) -> None:
        """Keep both offsets."""
        super().__init__(f"offset {delivered} was delivered where {expected} was due")
        self.expected = expected
        self.delivered = delivered


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a partition begins for a worker that was just assigned it."""

    offset: int
    """The first offset to be delivered."""
    lost: int = 0
    """Offsets that retention removed before anybody judged them."""
    truncated: bool = False
    """The log ends below the committed offset: a leader that had not all of it was elected."""


def anchor(committed: int | None, start: int, end: int) -> Anchor:
    """Say where to begin, from the committed offset and the log's first and next offset.

    Nothing committed, or a log that was truncated, means its start: judging a request twice is
    harmless, because the inbox answers again, but an offset that was given out a second time
    belongs to a request that nobody has seen.
    """
    if committed is None:
        return Anchor(start)
    if committed < start:
        return Anchor(start, lost=start - committed)
    if committed > end:
        return Anchor(start, truncated=True)
    return Anchor(committed)


class Prefix:
    """The offsets of one partition in one generation, from its anchor on.

    There is a new one for each assignment, and whoever works on a record keeps a reference to its
    own: what is marked done on a prefix that was given up changes nothing that is committed.
    """

    __slots__ = ("_committable", "_done", "_expected")

    def __init__(self, anchor_offset: int) -> None:
        """Begin at the offset that was committed when the partition was assigned."""
        self._expected = anchor_offset
        self._committable = anchor_offset
        self._done: set[int] = set()

    @property
    def expected(self) -> int:
        """The offset that is to be delivered next."""
        return self._expected

    @property
    def committable(self) -> int:
        """All offsets below this one are done; this is what Kafka calls the committed offset."""
        return self._committable

    def deliver(self, offset: int) -> bool:
        """Take note of a delivery; False says that it is a repeat and to be dropped.

        Raises:
            OffsetSkipped: an offset was left out. `join.requests` is not compacted, and what a
                transaction or a hostile producer leaves in the log is delivered as well (see
                `records`), so there is no gap that is all right. The prefix is unchanged.
        """
        if offset > self._expected:
            raise OffsetSkipped(self._expected, offset)
        if offset < self._expected:
            return False
        self._expected += 1
        return True

    def done(self, offset: int) -> None:
        """Mark a delivered offset as answered.

        Raises:
            ValueError: it was never delivered.
        """
        if offset >= self._expected:
            message = f"offset {offset} was not delivered"
            raise ValueError(message)
        if offset < self._committable:
            return
        self._done.add(offset)
        while self._committable in self._done:
            self._done.discard(self._committable)
            self._committable += 1
