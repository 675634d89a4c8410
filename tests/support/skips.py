"""A skip that nobody wrote down fails the session, and so does any expected failure.

A suite in which tests quietly stop running is worse than a red one.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.support.folders import ROOT

ALLOWED = ROOT / "tests" / "allowed-skips.txt"


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    """One line of the list: a pattern of node ids, and words of the reason."""

    node: str
    reason: str

    def covers(self, node: str, reason: str) -> bool:
        """Tell whether this line allows the skip."""
        return fnmatchcase(node, self.node) and self.reason in reason


def read_allowed(text: str) -> list[AllowedSkip]:
    """Read `pattern of node ids | words of the reason` lines; `#` begins a comment.

    Raises:
        ValueError: a line has not both.
    """
    allowed: list[AllowedSkip] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        node, bar, reason = (part.strip() for part in line.partition("|"))
        if not (node and bar and reason):
            message = f"not `node id | reason`: {line}"
            raise ValueError(message)
        allowed.append(AllowedSkip(node, reason))
    return allowed


@dataclass(slots=True, eq=False)  # pluggy keeps plugins in sets
class SkipGuard:
    """Collects what must not be."""

    allowed: list[AllowedSkip]
    offences: list[str] = field(default_factory=list[str])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at each finished phase of each test."""
        if hasattr(report, "wasxfail"):
            self.offences.append(f"{report.nodeid}: expected to fail")
        elif report.skipped:
            self._judge(report.nodeid, report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Look at modules that skip themselves."""
        if report.skipped:
            self._judge(report.nodeid, report.longrepr)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is wrong."""
        for offence in self.offences:
            terminalreporter.write_line(f"NOT ALLOWED {offence}", red=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session."""
        if self.offences and session.exitstatus in {
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        }:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judge(self, node: str, why: object) -> None:
        reason = str(why[2]) if isinstance(why, tuple) else str(why)
        if not any(skip.covers(node, reason) for skip in self.allowed):
            self.offences.append(f"{node}: {reason}; list it in {ALLOWED.relative_to(ROOT)}")


def pytest_configure(config: pytest.Config) -> None:
    """Stand guard."""
    config.pluginmanager.register(SkipGuard(read_allowed(Path(ALLOWED).read_text())))
