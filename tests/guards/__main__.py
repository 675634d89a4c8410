"""Switch each guard off in turn; pass only if its test fails then: `python -m tests.guards [NAME …]`."""

import os
import subprocess
import sys
import time

from tests.guards.guard import Guard
from tests.guards.plugin import VARIABLE
from tests.guards.registry import GUARDS

FAULTS = "tests.faults"
"""Stands for a test where only the fault suite shows the guard."""

_FAILED = 1
"""pytest's exit status when tests ran and some failed; anything else proves nothing."""


def _run(tests: list[str], off: str | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment.pop(VARIABLE, None)
    if off is not None:
        environment[VARIABLE] = off
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.guards.plugin", *tests]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _is_caught(guard: Guard) -> tuple[bool, str]:
    """Tell whether the guard's test notices that it is off, and what it said."""
    if guard.test == FAULTS:
        command = [sys.executable, "-m", FAULTS, "--guard", guard.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout
    done = _run([guard.test], guard.off)
    return done.returncode == _FAILED, done.stdout


def main(names: list[str]) -> int:
    """Return 0 only if every guard's test passes with it and fails without it."""
    chosen: list[Guard] = [guard for guard in GUARDS if not names or guard.name in names]
    tests = sorted({guard.test for guard in chosen if guard.test != FAULTS})
    together = _run(tests, None) if tests else None
    if together is not None and together.returncode:
        print(together.stdout[-4000:])
        print("guards: a test fails with every guard in place")
        return 1
    missed = 0
    for guard in chosen:
        begun = time.monotonic()
        caught, said = _is_caught(guard)
        missed += not caught
        word = "caught" if caught else "MISSED"
        print(
            f"{word:7} {guard.name:36} {time.monotonic() - begun:5.1f} s  {guard.test}", flush=True
        )
        if not caught:
            print(said[-1500:])
    print(f"guards: {len(chosen)} switched off, {len(chosen) - missed} caught, {missed} missed")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
