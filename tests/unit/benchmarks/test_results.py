"""What the benchmark says of its numbers."""

from pathlib import Path

import pytest

from tests.benchmarks.results import (
    Measure,
    Target,
    at_least,
    at_least_times,
    at_most,
    at_most_times,
    read,
    table,
    write,
)


@pytest.mark.parametrize(
    ("target", "value", "floor", "met"),
    [
        (at_least(2400), 2400.0, None, True),
        (at_least(2400), 2399.9, None, False),
        (at_most(5), -3.0, None, True),
        (at_most_times(1.8), 360.0, 200.0, True),
        (at_most_times(1.8), 361.0, 200.0, False),
        (at_least_times(2), 5000.0, 2400.0, True),
        (at_least_times(2), 5000.0, None, False),
    ],
    ids=str,
)
def test_a_target_is_met_or_missed(
    target: Target, value: float, floor: float | None, *, met: bool
) -> None:
    """A missed target must show, and a ratio to nothing is no success."""
    assert target.is_met(Measure("row", "metric", value, "1/s", floor, target)) is met


def test_the_file_has_the_members_that_others_read(tmp_path: Path) -> None:
    """Dashboards and the README read it."""
    measures = [Measure("join-token", "p50_ms", 7.12345, "ms"), Measure("relay", "x", 6, "1/s", 3)]
    write(measures, tmp_path / "build" / "bench.json")
    text = (tmp_path / "build" / "bench.json").read_text()
    assert (
        '{"name": "relay", "metric": "x", "value": 6, "unit": "1/s", "floor": 3, "ratio": 2.0}'
        in text
    )
    assert [m.as_json() for m in read(tmp_path / "build" / "bench.json")] == [
        m.as_json() for m in measures
    ]


def test_the_table_is_markdown_and_names_what_was_missed() -> None:
    lines = table(
        [
            Measure("join-token", "joins_per_s", 2612.4, "1/s", target=at_least(2400)),
            Measure("join-token", "worker_cpu_us_per_join", 400, "µs", 200, at_most_times(1.8)),
        ]
    ).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert "2,612" in lines[2]
    assert "met" in lines[2]
    assert "2.00" in lines[3]
    assert "MISSED" in lines[3]
