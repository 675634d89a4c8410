"""What is asked of a simulation is what it does, and can be had again."""

import itertools
from collections import Counter

import pytest

from watchword.handlers.errors import BadArgument
from watchword.streams.simulator.options import (
    Simulation,
    parse_faults,
    parse_mix,
    parse_rate,
)
from watchword.streams.simulator.plan import planned
from watchword.streams.simulator.report import Report, percentile


def simulation(seed: int = 1, nodes: int = 4000) -> Simulation:
    mix = parse_mix("token=70,discovery=20,restricted=10")
    return Simulation(nodes, 200.0, mix, parse_faults("duplicate=5,forged=10"), 25.0, 10.0, seed)


def test_shares_and_rate_are_what_was_asked_for() -> None:
    machines = list(planned(simulation()))
    kinds = Counter(machine.kind for machine in machines)
    assert kinds["token"] / len(machines) == pytest.approx(0.7, abs=0.03)
    assert kinds["restricted"] / len(machines) == pytest.approx(0.1, abs=0.03)
    assert sum(m.fault == "forged" for m in machines) / len(machines) == pytest.approx(
        0.1, abs=0.03
    )
    assert len(machines) / machines[-1].at_s == pytest.approx(200, rel=0.1)
    assert all(a.at_s < b.at_s for a, b in itertools.pairwise(machines))


def test_same_seed_is_the_same_run_and_another_is_not() -> None:
    """A mismatch that was seen once has to be seen again."""
    assert list(planned(simulation())) == list(planned(simulation()))
    assert list(planned(simulation())) != list(planned(simulation(seed=2)))


def test_who_must_stay_out_neither_renews_nor_leaves() -> None:
    machines = [m for m in planned(simulation()) if m.fault == "forged"]
    assert machines
    assert not any(m.may_join or m.renews or m.leaves for m in machines)


@pytest.mark.parametrize(
    ("text", "per_second"), [("200/s", 200.0), ("90/min", 1.5), ("0.5/s", 0.5)]
)
def test_rates(text: str, per_second: float) -> None:
    assert parse_rate(text) == per_second


@pytest.mark.parametrize("text", ["200", "0/s", "-1/s", "200/h", "1e9/s", ""])
def test_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadArgument):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("token=70", "70 together"),
        ("token=50,token=50", "twice"),
        ("badge=100", "none of token"),
        ("token", "needs a share"),
        ("token=nan", "percent"),
        ("token=120,tpm=-20", "percent"),
    ],
)
def test_mix_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        parse_mix(text)


def test_no_faults_are_none() -> None:
    assert parse_faults("") == {}


@pytest.mark.parametrize(("share", "value"), [(50, 5), (95, 10), (99, 10), (1, 1)])
def test_percentiles_are_values_that_were_seen(share: int, value: int) -> None:
    assert percentile(list(range(1, 11)), share) == value


def test_table_has_a_row_for_each_kind_and_step() -> None:
    report = Report()
    report.came_to("token", "renew", "joined", 0.2)
    report.came_to("token", "join", "joined", 0.1)
    report.came_to("token", "join", "refused", 0.3)
    first, second = report.rows()
    assert (first["step"], first["count"], first["max_ms"]) == ("join", 2, 300.0)
    assert first["outcomes"] == "joined 1, refused 1"
    assert second["step"] == "renew"


def test_mismatches_are_told_and_never_a_flood() -> None:
    report = Report()
    for number in range(50):
        report.mismatch(number, "token", "join", "refused, not joined")
    assert len(report.complaints()) == 21
    assert report.complaints()[-1] == "and 30 more"
