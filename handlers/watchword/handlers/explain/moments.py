"""The moments that a recorded verdict may be of. Pure.

A request is judged over a while: what its attestor read, it read when the attempt began, and what was looked
at under locks is as it was when the transaction wrote. So there are several moments that a verdict may be
of. They are tried in turn, and then what was read before together with what the locks showed, for something may have
come in between: after the attempt began, or before, in a transaction that had not committed yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from watchword.handlers.explain.explanation import Recorded
from watchword.handlers.explain.past import Look, Mark, Moment, Tail
from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.records import Incoming

_LOW_BITS = (1 << 32) - 1

_COMMITS_WITHIN = timedelta(seconds=20)
"""How long at most a transaction may take from the time that it is stamped with to its end: no statement is waited for
longer than 15 s, its COMMIT included."""

_MOST_IN_DOUBT = 16
"""Transactions of which is asked what was read without them, the latest first."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A request's bytes, and what is known of when it was judged."""

    incoming: Incoming
    recorded: Recorded | None
    sent_at: datetime | None = None
    """When Kafka took it, for one of which no outcome is recorded."""


def _moments(stored: Stored, tail: Tail, now: datetime, *, as_of_now: bool) -> list[Moment]:
    """Return the moments at which a request may have been judged, the likeliest first."""
    recorded = stored.recorded
    if as_of_now:
        return [Moment(now, lambda _: False, "as it is now")]
    if recorded is None:
        sent_at = stored.sent_at
        if sent_at is None:
            return [Moment(now, lambda _: False, "as it is now: no outcome of it is recorded")]
        return [
            Moment(sent_at, lambda event: event.occurred_at > sent_at, "as it was when it was sent")
        ]
    found: list[Moment] = []
    at = recorded.at
    own = _own_event(stored, recorded, tail)
    if recorded.is_repeat:
        # The other may have come in the same attempt, in this transaction or another one.
        found.append(
            Moment(
                at,
                lambda event: event.occurred_at > at,
                "as it was behind others of its attempt",
            )
        )
    elif own is not None:
        seq = own.seq
        found.append(
            Moment(at, lambda event: event.seq >= seq, "as it was when the outcome was written")
        )
    elif recorded.recorded_at is not None:
        written = recorded.recorded_at
        found.append(
            Moment(
                at,
                lambda event: event.recorded_at >= written or _is_of(event, recorded),
                "as it was when the outcome was written",
            )
        )
        if recorded.xid is not None and tail.of_transaction(recorded.xid):
            found.append(
                Moment(
                    at,
                    lambda event: event.recorded_at >= written and not _is_of(event, recorded),
                    "as it was when the outcome was written, behind others of its batch",
                )
            )
    found.append(
        Moment(
            at,
            lambda event: event.occurred_at >= at or _is_of(event, recorded),
            "as it was when its attempt began",
        )
    )
    return found


def looks(stored: Stored, tail: Tail, now: datetime, *, as_of_now: bool) -> Iterator[Look]:
    """Yield what a request may have been judged by.

    Whoever takes the next has found that the one before does not explain it.
    """
    moments = _moments(stored, tail, now, as_of_now=as_of_now)
    yield from ((one, one) for one in moments)
    written, began = moments[0], moments[-1]
    if written is began:
        return
    doubts = _Doubts(began, written)
    yield Moment(began.now, doubts.hides, began.what), written
    for event in doubts.latest():
        yield doubts.without(event), written


@dataclass(slots=True)
class _Doubts:
    """What of all that was looked at may have been committed before it was read, or after.

    It was stamped when the attempt began, or had happened when the locks were held; no event tells when it committed.
    """

    began: Moment
    written: Moment
    found: dict[int, Mark] = field(default_factory=dict[int, Mark])
    """One event of each transaction."""

    def hides(self, event: Mark) -> bool:
        """See `Moment.hides`; it is asked about each event that has touched what is read."""
        is_later = self.began.hides(event)
        if is_later:
            is_doubtful = not self.written.hides(event)
        else:
            is_doubtful = event.occurred_at > self.began.now - _COMMITS_WITHIN
        if is_doubtful:
            self.found[event.xid] = event
        return is_later

    def latest(self) -> list[Mark]:
        """Return an event of each such transaction, the latest first."""
        return sorted(self.found.values(), key=lambda event: -event.seq)[:_MOST_IN_DOUBT]

    def without(self, event: Mark) -> Moment:
        """Return the moment of reading in which this transaction alone had not committed yet."""
        others = self.written if self.began.hides(event) else self.began
        return Moment(
            self.began.now,
            lambda one: one.xid == event.xid or others.hides(one),
            f"{others.what}, before a {event.type} had committed",
        )


def _is_of(event: Mark, recorded: Recorded) -> bool:
    """Tell whether an event was written by the transaction that recorded an outcome."""
    if recorded.xid is None:
        return False
    return event.xid == recorded.xid or event.xid & _LOW_BITS == recorded.xid


def _own_event(stored: Stored, recorded: Recorded, tail: Tail) -> Mark | None:
    """Return the event of the request's own admission, renewal or waiting."""
    csr = Candidate(stored.incoming).question.csr_sha256
    if csr is None:
        return None
    # Behind a savepoint a row has another transaction's number than its event; then the attempt's time tells.
    marks = tail.about(csr)
    same = [mark for mark in marks if _is_of(mark, recorded)]
    same += [mark for mark in marks if mark.occurred_at == recorded.at]
    return next(iter(same), None)
