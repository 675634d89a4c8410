"""`python -m tests.cases`: run the tests of cases, and print case, test and verdict; `--list` runs none."""

import sys
from collections.abc import Sequence

import pytest

from tests.cases.catalogue import CASES, NOT_OURS, OPEN
from tests.cases.plugin import Verdicts

_FOLDERS = ("tests/unit", "tests/integration", "tests/vectors")


def main(given: Sequence[str]) -> int:
    """Return 1 if a case has no test and is not said to be open, a test has no known case, or one failed."""
    only_list = "--list" in given
    options = [option for option in given if option != "--list"]
    if only_list:
        options.append("--collect-only")
    verdicts = Verdicts()
    status = pytest.main(["-q", "-p", "no:cacheprovider", *options, *_FOLDERS], plugins=[verdicts])
    print("\n".join(["", *table(verdicts)]))
    unknown = verdicts.by_case.keys() - CASES.keys()
    without = CASES.keys() - verdicts.by_case.keys() - NOT_OURS.keys() - OPEN.keys()
    for case in sorted(unknown):
        print(f"{case}: marked, and not in tests/cases/catalogue.py")
    for case in sorted(without):
        print(f"{case}: no test")
    still_open = OPEN.keys() - verdicts.by_case.keys()
    print(f"{len(CASES)} cases, {len(still_open)} open: {', '.join(sorted(still_open)) or 'none'}")
    return 1 if status or unknown or without or verdicts.failed else 0


def table(verdicts: Verdicts) -> list[str]:
    """Return the lines of the table: a test with parameters is one line, as bad as its worst."""
    lines: list[str] = []
    for case, what in CASES.items():
        lines.append(f"{case}  {what}")
        if case in NOT_OURS:
            lines.append(f"      not ours: {NOT_OURS[case]}")
        if case in OPEN and not verdicts.by_case.get(case):
            lines.append(f"      OPEN: {OPEN[case]}")
        tests: dict[str, set[str]] = {}
        for node_id in verdicts.by_case.get(case, ()):
            tests.setdefault(node_id.partition("[")[0], set()).add(verdicts.verdict(node_id))
        lines += [f"      {'/'.join(sorted(said)):8} {test}" for test, said in tests.items()]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
