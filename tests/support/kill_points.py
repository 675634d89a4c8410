"""Ends the process at a point, as a SIGKILL does; named by `WATCHWORD_FAILPOINTS_MODULE`.

`WATCHWORD_TEST_KILL_AT` has the point's name.
"""

import os
import signal

from watchword.streams import failpoints

_POINT = os.environ.pop("WATCHWORD_TEST_KILL_AT")  # it would be taken for a setting


def _kill(name: str) -> None:
    if name == _POINT:
        os.kill(os.getpid(), signal.SIGKILL)


failpoints.install(_kill)
