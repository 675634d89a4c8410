"""The points where the fault suite ends a process."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from watchword.streams import failpoints


@pytest.fixture(autouse=True)
def _as_before() -> Generator[None]:
    before = failpoints.hit
    yield
    failpoints.install(before)


def test_a_point_does_nothing_in_production() -> None:
    failpoints.load({})
    failpoints.hit("after-commit-before-response")


def test_the_named_module_gets_every_point_that_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "points_of_a_test.py").write_text(
        "from watchword.streams import failpoints\nreached = []\nfailpoints.install(reached.append)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    failpoints.load({failpoints.VARIABLE: "points_of_a_test"})
    failpoints.hit("after-commit-before-response")
    failpoints.hit("after-response-before-offset")

    assert sys.modules.pop("points_of_a_test").reached == [
        "after-commit-before-response",
        "after-response-before-offset",
    ]


def test_a_module_that_is_not_there_stops_the_process_from_starting() -> None:
    with pytest.raises(ModuleNotFoundError):
        failpoints.load({failpoints.VARIABLE: "no.such.module"})
