"""Text of machines in pages."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from watchword.handlers.operators.overview import least_id
from watchword.streams.console.forms import safe_next
from watchword.streams.console.pages.overview import bars
from watchword.streams.console.rendering import (
    breakable,
    briefly,
    coded,
    fingerprint,
    lasting,
    moment,
    said,
)


def test_nothing_in_a_text_turns_hides_or_overwrites_what_stands_around_it() -> None:
    """An operator decides by what they read."""
    assert said("a\u202eb\x1b[2Jc\u200bd") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2Jc\N{REPLACEMENT CHARACTER}d"  # fmt: skip
    assert str(briefly("<b>")) == '<span class="mono" title="&lt;b&gt;">&lt;b&gt;</span>'
    assert "…" in briefly(UUID(int=1))


def test_what_an_operator_is_to_type_stands_out_and_is_text() -> None:
    """A reason may be a stranger's: what it says between backquotes is as little to be believed as the rest."""
    assert coded("use `--x`, <b>") == "use <code>--x</code>, &lt;b&gt;"
    assert coded("`<script>`") == "<code>&lt;script&gt;</code>"


def test_a_fingerprint_can_be_read_aloud() -> None:
    """Two people compare it over a telephone."""
    shown = str(fingerprint(bytes(range(32))))
    assert "00010203 04050607" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "\N{EN DASH}"), (-5, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds: float | None, text: str) -> None:
    """At three in the morning nobody divides by 3600."""
    assert lasting(seconds) == text


def test_a_long_name_may_go_on_in_the_next_line_and_is_still_text() -> None:
    """On a telephone an action of three parts must not push the column that says why out of sight."""
    assert str(breakable("node.command.cancel")) == "node.<wbr>command.<wbr>cancel"
    assert str(breakable("attestor:<b>")) == "attestor:<wbr>&lt;b&gt;"
    assert said({"kind": "logs.collect", "reason": None}) == "kind: logs.collect"


def test_times_are_in_utc_with_what_programs_need() -> None:
    """Two operators in two countries speak of one moment."""
    shown = str(moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(milliseconds=6)))
    assert 'datetime="2026-01-02T03:04:05.006Z"' in shown
    assert "<span>2026-01-02</span> <span>03:04:05</span>" in shown


def test_a_chart_shows_that_there_was_something() -> None:
    """One refusal beside ten thousand is still one."""
    assert [bar["height"] for bar in bars([0, 1, 10_000])] == [0, 1, 60]
    assert [bar["height"] for bar in bars([0, 0])] == [0, 0]


def test_ids_of_a_time_begin_where_that_time_begins() -> None:
    """Counts of the last hour read a range of the key."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert least_id(at).int >> 80 == int(at.timestamp() * 1000)


@pytest.mark.parametrize(
    "address", ["//evil.example", "/\\evil", "https://evil.example", "javascript:x", "", "/a\nb"]
)
def test_nobody_is_sent_to_another_site(address: str) -> None:
    """The address comes from whoever made the link."""
    assert not safe_next(address)
