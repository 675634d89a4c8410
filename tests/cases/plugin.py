"""A pytest plugin that keeps only tests with a case, and remembers the verdict of each."""

from dataclasses import dataclass, field

import pytest

from tests.cases.catalogue import SHOWN_BY

_SHOWS: dict[str, set[str]] = {}
for _case, _tests in SHOWN_BY.items():
    for _test in _tests:
        _SHOWS.setdefault(_test, set()).add(_case)


@dataclass(eq=False)
class Verdicts:
    """What became of the tests of cases."""

    by_case: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Node ids of the tests of each case."""
    failed: set[str] = field(default_factory=set[str])
    passed: set[str] = field(default_factory=set[str])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Note the cases of each test; leave the others out."""
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            cases = {str(mark.args[0]) for mark in item.iter_markers("case")}
            cases |= _SHOWS.get(item.nodeid.partition("[")[0], set())
            for case in sorted(cases):
                self.by_case.setdefault(case, []).append(item.nodeid)
            (kept if cases else left_out).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a verdict: a test that was skipped, or whose fixture broke, has shown nothing."""
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def verdict(self, node_id: str) -> str:
        """Return what a test says."""
        if node_id in self.failed:
            return "FAILED"
        return "holds" if node_id in self.passed else "not run"
