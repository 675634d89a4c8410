"""`python -m tests.mutants MODULE [TEST ...]`: change a module in one place at a time, and see that a test fails.

What survives is printed as a difference; the run fails unless `explained.toml` says why it may.
"""

import argparse
import difflib
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path

from tests.mutants.changes import Change, changes_of
from tests.mutants.forks import Forks, NotRunError
from tests.support.folders import ROOT

_HANDLERS = "handlers/watchword/handlers"
_UNIT = "tests/unit/handlers"
TESTS: dict[str, tuple[str, ...]] = {
    f"{_HANDLERS}/attestors/join_token/verifier.py": (
        f"{_UNIT}/attestors/test_join_token_verifier.py",
    ),
    f"{_HANDLERS}/attestors/x509pop/verifier.py": (
        f"{_UNIT}/attestors/test_x509pop_verifier.py",
        f"{_UNIT}/attestors/test_x509pop.py",
    ),
    f"{_HANDLERS}/join/deciding.py": (
        f"{_UNIT}/join/test_deciding.py",
        f"{_UNIT}/join/test_deciding_again.py",
        f"{_UNIT}/join/test_deciding_nodes.py",
        f"{_UNIT}/join/test_deciding_reasons.py",
    ),
    f"{_HANDLERS}/join/settlement.py": (
        f"{_UNIT}/join/test_settlement_claims.py",
        f"{_UNIT}/join/test_settlement_locks.py",
        f"{_UNIT}/join/test_settlement_writes.py",
    ),
    f"{_HANDLERS}/attestors/image/verifier.py": (f"{_UNIT}/attestors/test_image_verifier.py",),
    f"{_HANDLERS}/attestors/discovery/verifier.py": (
        f"{_UNIT}/attestors/test_discovery_verifier.py",
        f"{_UNIT}/attestors/test_discovery_machines.py",
    ),
    f"{_HANDLERS}/attestors/cloud_iid/verifier.py": (
        f"{_UNIT}/attestors/cloud_iid/test_admission.py",
    ),
    f"{_HANDLERS}/attestors/tpm/verifier.py": (
        f"{_UNIT}/attestors/tpm/test_verifier.py",
        f"{_UNIT}/attestors/tpm/test_verifier_quotes.py",
    ),
}
"""The tests that have to notice, unless others are named: the quickest that show the module's promises."""

_ABOUT = "Change a module in one place at a time, and see that a test fails."
_EXPLAINED = Path(__file__).with_name("explained.toml")


def main(given: Sequence[str]) -> int:
    """Return 0 if every change was noticed, or is explained; 1 if one was not, or did not end; 2 if nothing could be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=_ABOUT)
    parser.add_argument("module", help="its path, from the checkout's root")
    parser.add_argument("tests", nargs="*", help="what has to notice, if not what TESTS names")
    parser.add_argument("--lines", type=_lines, help="change these alone: 40-60,75")
    options = parser.parse_args(given)
    module: str = options.module
    tests: list[str] = options.tests or list(TESTS.get(module, ()))
    if not tests:
        parser.error(f"name its tests, or one of these modules: {', '.join(TESTS)}")
    os.chdir(ROOT)
    # Hypothesis would keep what made a changed module fail, and try it on the real one.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(ROOT / "build" / "mutants")
    forks = Forks(_dotted(module), ROOT / module, tests)
    try:
        return _tried(module, forks, options.lines)
    except NotRunError as error:
        print(f"mutants of {module}: {error}")
        return 2


def _tried(module: str, forks: Forks, only: Container[int] | None) -> int:
    source, explained = (ROOT / module).read_text(), _explained(module)
    lines = source.splitlines()
    counts = Counter[str]()
    begun = time.monotonic()
    forks.prepare()
    for change in changes_of(source, only):
        verdict: str = forks.judge(change.source)
        if (lines[change.line - 1].strip(), change.name) in explained and verdict == "survived":
            verdict = "explained"
        if verdict != "noticed":
            print(f"::: {verdict} {change.name}, line {change.line}")
            print(_difference(source, change), flush=True)
        counts[verdict] += 1
    print(
        f"mutants of {module}: {counts.total()} made, {counts['noticed']} noticed, {counts['hung']} did not end, "
        f"{counts['explained']} explained, {counts['survived']} without a word; {time.monotonic() - begun:.0f} s"
    )
    return int(counts["survived"] + counts["hung"] > 0)


def _lines(text: str) -> set[int]:
    """Return line numbers out of `40-60,75`; raises `ValueError`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _explained(module: str) -> set[tuple[str, str]]:
    """Return the lines as they stand, each with the name of a change that nobody could tell."""
    table = tomllib.loads(_EXPLAINED.read_text())
    return {
        (row["line"], change)
        for row in table.get("explained", [])
        if row["module"] == module
        for change in row["changes"]
    }


def _difference(source: str, change: Change) -> str:
    lines = difflib.unified_diff(source.splitlines(), change.source.splitlines(), lineterm="", n=0)
    return "\n".join(list(lines)[3:])


def _dotted(module: str) -> str:
    """Return a module's name: its path without the source root and the ending."""
    return ".".join(Path(module).with_suffix("").parts[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
