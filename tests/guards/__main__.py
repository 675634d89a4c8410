"""Switch each guard off in turn; pass only if its test fails then: `python -m tests.guards [NAME …]`."""

import os
import subprocess
import sys
import time

from tests.guards.plugin import VARIABLE
from tests.guards.registry import GUARDS, Guard

_FAILED = 1
"""pytest's exit status when tests ran and some failed; anything else proves nothing."""


def _run(tests: list[str], off: str | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment.pop(VARIABLE, None)
    if off is not None:
        environment[VARIABLE] = off
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.guards.plugin", *tests]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def main(names: list[str]) -> int:
    """Return 0 only if every guard's test passes with it and fails without it."""
    chosen: list[Guard] = [guard for guard in GUARDS if not names or guard.name in names]
    together = _run(sorted({guard.test for guard in chosen}), None)
    if together.returncode:
        print(together.stdout[-4000:])
        print("guards: a test fails with every guard in place")
        return 1
    missed = 0
    for guard in chosen:
        begun = time.monotonic()
        without = _run([guard.test], guard.off)
        caught = without.returncode == _FAILED
        missed += not caught
        word = "caught" if caught else "MISSED"
        print(
            f"{word:7} {guard.name:36} {time.monotonic() - begun:5.1f} s  {guard.test}", flush=True
        )
        if not caught:
            print(without.stdout[-1500:])
    print(f"guards: {len(chosen)} switched off, {len(chosen) - missed} caught, {missed} missed")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
