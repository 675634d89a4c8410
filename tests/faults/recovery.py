"""How long the deployment took to be itself again, as machines and consumers felt it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.faults.fault import Injection
from tests.faults.judge.ledger import Asked

_BEFORE_S = 0.5
"""What was under way when the fault came counts as hit by it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The longest that anything waited which came while a fault lasted."""

    answer_s: float | None
    """From a request's acknowledgement to its answer; where the machine measured, from its first word."""
    event_s: float | None
    """From a row's insertion to its event."""


def recovery(
    injection: Injection,
    asked: Iterable[Asked],
    rows: Sequence[tuple[str, float]],
    events: Mapping[str, float],
) -> Recovery:
    """Return the longest waits; `rows` are event ids and times of the wall clock, `events` arrivals."""
    answers = [
        one.answered_at - one.acknowledged_at if one.felt_s is None else one.felt_s
        for one in asked
        if one.acknowledged_at is not None
        and one.answered_at is not None
        and injection.began - _BEFORE_S <= one.acknowledged_at <= injection.ended
    ]
    published = [
        events[event_id] - at
        for event_id, at in rows
        if event_id in events and injection.began_wall - _BEFORE_S <= at <= injection.ended_wall
    ]
    return Recovery(max(answers, default=None), max(published, default=None))
