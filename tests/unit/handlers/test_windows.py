"""When a summary is due, and what it says."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from watchword.handlers.windows import (
    MAX_ROWS,
    Counts,
    Due,
    Limit,
    Seen,
    Window,
    is_over,
    look,
    summary,
)
from watchword.schemas.events import RefusalWindow

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUCKET = ("acme", "join-token", "expired")


def _look(windows: dict[tuple[str, str, str], Window], seen: Seen | None) -> tuple[object, object]:
    found = look(
        windows,
        {} if seen is None else {BUCKET: seen},
        now=NOON,
        from_snapshot="7:7:",
        period=MINUTE,
    )
    return dict(found.due), dict(found.grown)


@pytest.mark.parametrize(
    ("age", "recorded", "seen", "due", "grown"),
    [
        pytest.param(None, 0, None, {}, {}, id="quiet"),
        pytest.param(None, 0, Seen(5, 0), {}, {}, id="all published"),
        pytest.param(None, 0, Seen(5, 1), {BUCKET: Due("7:7:", None)}, {}, id="start"),
        pytest.param(30, 3, Seen(5, 1), {}, {BUCKET: 5}, id="within the period"),
        pytest.param(30, 3, None, {}, {}, id="within the period, nothing new"),
        pytest.param(
            60, 3, None, {BUCKET: Due("3:3:", NOON - MINUTE)}, {}, id="the period is over"
        ),
        pytest.param(
            30,
            MAX_ROWS - 1,
            Seen(1, 0),
            {BUCKET: Due("3:3:", NOON - MINUTE / 2)},
            {},
            id="too many rows",
        ),
    ],
)
def test_a_summary_is_due(
    age: int | None, recorded: int, seen: Seen | None, due: object, grown: object
) -> None:
    """At once when something is held back, then once in a period: no sooner, no later."""
    windows = (
        {} if age is None else {BUCKET: Window(NOON - timedelta(seconds=age), "3:3:", recorded)}
    )
    assert _look(windows, seen) == (due, grown)


@pytest.mark.parametrize(
    ("start", "suppressed", "phase"),
    [(None, 4, "start"), (NOON - MINUTE, 4, "running"), (NOON - MINUTE, 0, "end")],
)
def test_a_summary_says_its_phase_and_its_counts(
    start: datetime | None, suppressed: int, phase: str
) -> None:
    """A consumer that adds up `suppressed` has the exact number, whatever the phases are."""
    due = Due("3:3:", start)
    counts = Counts(10, 10 - suppressed, 3, 2, NOON - MINUTE / 2, NOON, ("r1",))
    made = summary(BUCKET, due, counts, now=NOON, limit=Limit(60, 60), source="/test")
    event = RefusalWindow.model_validate_json(made.value)

    assert is_over(due, counts) == (phase == "end")
    assert (event.phase, event.recorded, event.published, event.suppressed) == (
        phase,
        10,
        10 - suppressed,
        suppressed,
    )
    assert event.period_start == (
        "2026-01-02T11:59:30.000Z" if start is None else "2026-01-02T11:59:00.000Z"
    )
    assert event.tenant == "acme"
    assert json.loads(made.headers)["ce_id"] == str(made.event_id) == event.id
