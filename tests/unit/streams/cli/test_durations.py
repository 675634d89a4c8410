"""Durations and times as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from watchword.handlers.errors import BadArgument
from watchword.streams.cli.durations import duration, moment

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_durations_have_a_unit() -> None:
    """`10` might be seconds or days."""
    assert duration("90s") == timedelta(seconds=90)
    assert duration("2w") == timedelta(days=14)
    for text in ("10", "-1h", "1.5h", "h", "999999999w", "\u0661h"):
        with pytest.raises(BadArgument):
            duration(text)


def test_a_moment_is_a_time_or_so_long_ago() -> None:
    """In an incident nobody computes time zones."""
    assert moment("24h", NOW) == NOW - timedelta(days=1)
    assert moment("2026-01-01", NOW) == NOW - timedelta(days=1)
    assert moment("2026-01-01T02:00:00+02:00", NOW) == NOW - timedelta(days=1)
    with pytest.raises(BadArgument):
        moment("yesterday", NOW)
