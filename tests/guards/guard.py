"""One guard: what it promises, what switches it off, and the test that must fail then.

`off` is a function of `tests.guards.switches` that replaces the guard in a running interpreter.
`test` is a pytest node id; or `tests.faults`, for what only shows when processes die: then `off` are
functions of `tests.guards.process_switches` too, and the scenario stands in `tests.faults.guards`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard."""

    name: str
    promise: str
    """The number of the promise in docs/promises.md."""
    off: str
    test: str
