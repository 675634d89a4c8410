"""The soak's verdict: what grows is seen, what has a reason to is not, and what came and went is left out."""

from typing import Any

import pytest

from tests.soak.samples import HANDLES, LAG, MEMORY, TABLES, Samples, Series, Taken
from tests.soak.verdict import lines, table

WORKER = Series(MEMORY, "worker-0", "MiB")


def sampled(series: Series, figures: dict[int, float]) -> Samples:
    nobody: Any = None
    taken = [Taken(float(at), {series: figure}) for at, figure in figures.items()]
    return Samples(nobody, taken=taken)


def over_time(begin: float, each_second: float) -> dict[int, float]:
    return {at: begin + each_second * at for at in range(101)}


@pytest.mark.parametrize(
    ("series", "figures", "is_flat"),
    [
        (WORKER, over_time(100.0, 0.0), True),
        (WORKER, over_time(100.0, 0.5), False),
        (WORKER, over_time(100.0, -0.5), True),
        (Series(HANDLES, "relay-0", ""), over_time(20.0, 1.0), False),
        (Series(LAG, "relays", "s"), over_time(0.1, 0.1), False),
        (Series(TABLES, "nodes", "MiB"), over_time(1.0, 5.0), None),
    ],
)
def test_growth_after_the_warm_up_is_seen(
    *, series: Series, figures: dict[int, float], is_flat: bool | None
) -> None:
    """A leak of half a MiB a second fails the run; nodes are there to stay."""
    [line] = lines(sampled(series, figures), 30.0)
    assert line.is_flat is is_flat
    assert ("GROWS" in table([line])) is (is_flat is False)


def test_growth_before_the_warm_up_is_none() -> None:
    """Caches fill, and that is what they are for."""
    figures = {at: min(100.0 + 10 * at, 300.0) for at in range(101)}
    [line] = lines(sampled(WORKER, figures), 30.0)
    assert line.is_flat


def test_one_peak_is_no_growth() -> None:
    """A process that is looked at in a bad moment does not leak."""
    figures = over_time(100.0, 0.0) | {98: 900.0}
    [line] = lines(sampled(WORKER, figures), 30.0)
    assert line.is_flat


def test_what_was_not_there_all_along_has_no_line() -> None:
    """A partition that was dropped has no end to compare with."""
    assert lines(sampled(WORKER, {0: 1.0, 1: 1.0, 100: 1.0}), 30.0) == []
