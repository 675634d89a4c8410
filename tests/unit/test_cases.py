"""The catalogue of cases: numbers that are known, and tests that are there."""

import re
from pathlib import Path

import pytest

from tests.cases.catalogue import CASES, NOT_OURS, OPEN, SHOWN_BY

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("node_id", sorted({test for tests in SHOWN_BY.values() for test in tests}))
def test_tests_that_show_a_case_are_there(node_id: str) -> None:
    """A test that was renamed would take its case with it, unseen."""
    file, _, name = node_id.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


def test_numbers_of_cases_are_known() -> None:
    """A misspelt number would be a case that nobody sees."""
    assert (SHOWN_BY.keys() | NOT_OURS.keys() | OPEN.keys()) <= CASES.keys()
    assert not NOT_OURS.keys() & OPEN.keys()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for number in re.findall(r'mark\.case\("([^"]*)"\)', file.read_text("utf-8")):
            assert number in CASES, file
