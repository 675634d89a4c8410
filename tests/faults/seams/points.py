"""Ends or stops this very process at a named point, when a file says so; switches a guard off.

Imported by the command line through `WATCHWORD_FAILPOINTS_MODULE`. A file named as the point, with
`kill 3` or `stop 1` in it, arms the point: at the third time, or the first, the process gets the
signal from itself, so that nothing comes in between.
"""

import os
import signal
from pathlib import Path

from watchword.streams import failpoints

_FOLDER = Path(os.environ["FAULTS_POINTS"])


def _hook(point: str) -> None:
    armed = _FOLDER / point
    try:
        action, nth = armed.read_text().split()
    except FileNotFoundError:
        return
    if int(nth) > 1:
        armed.write_text(f"{action} {int(nth) - 1}")
        return
    armed.rename(_FOLDER / f"{point}.hit")
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


failpoints.install(_hook)

if names := os.environ.get("FAULTS_GUARD_OFF"):
    from tests.guards.process_switches import PROCESS_SWITCHES
    from tests.guards.switches import SWITCHES

    for name in names.split("+"):
        (SWITCHES | PROCESS_SWITCHES)[name]()
