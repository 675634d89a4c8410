"""When a transaction committed is not in the journal: so several states are tried that a request may have been read in."""

from datetime import UTC, datetime, timedelta

from watchword.handlers.explain.explanation import Recorded, Verdict
from watchword.handlers.explain.moments import Stored, looks
from watchword.handlers.explain.past import Mark, Tail
from watchword.handlers.join.records import Incoming

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_WRITTEN = _BEGAN + timedelta(seconds=1)


def _mark(seq: int, seconds: float) -> Mark:
    """Return an event so long after the attempt began, in a transaction of its own."""
    at = _BEGAN + timedelta(seconds=seconds)
    return Mark(seq, xid=seq, recorded_at=at, occurred_at=at, type="node.banned", key="node")


_LONG_AGO, _BEFORE, _MEANWHILE, _THEN, _AFTERWARDS = _MARKS = [
    _mark(seq, seconds) for seq, seconds in enumerate((-60.0, -5.0, 0.2, 0.4, 2.0), start=1)
]


def _read_and_decided() -> list[tuple[set[int], set[int]]]:
    """Return for each look which events it does not see as it reads, and which under the locks."""
    refused = Recorded(Verdict("refused", "join:banned"), at=_BEGAN, recorded_at=_WRITTEN)
    stored = Stored(Incoming(b"", "join.requests", 0, 0), refused)
    return [
        ({m.seq for m in _MARKS if begun.hides(m)}, {m.seq for m in _MARKS if written.hides(m)})
        for begun, written in looks(stored, Tail(), _WRITTEN, as_of_now=False)
    ]


def test_each_transaction_that_may_have_come_late_is_tried_as_late() -> None:
    """Else a verdict of a moment in which a server stood still differs from what is recorded, and looks like a bug."""
    found = _read_and_decided()
    after, later = {_AFTERWARDS.seq}, {_MEANWHILE.seq, _THEN.seq, _AFTERWARDS.seq}
    assert found == [
        (after, after),
        (later, later),
        (later, after),
        ({_THEN.seq} | after, after),
        ({_MEANWHILE.seq} | after, after),
        ({_BEFORE.seq} | later, after),
    ]


def test_what_had_ended_long_before_was_seen() -> None:
    """What is tried has to be a state that the request may have met."""
    assert all(_LONG_AGO.seq not in read for read, _ in _read_and_decided())
