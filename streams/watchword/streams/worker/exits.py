"""How the process ends, as a number for whoever started it."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    """The exit status; where sysexits.h has a word for it, that one."""

    OK = 0
    CRASHED = 70
    """EX_SOFTWARE: something raised that must not; nothing unanswered was acknowledged."""
    OUT_OF_MEMORY = 71
    """EX_OSERR: a verifier, or something beside it, needed more memory than there is; nothing more was acknowledged."""
    DRAIN_OVERDUE = 75
    """EX_TEMPFAIL: draining took longer than it may; what was not answered comes again."""
    OFFSET_SKIPPED = 76
    """EX_PROTOCOL: an offset was left out; nothing was acknowledged after it was seen."""
    STALLED = 79
    """Ours: the event loop was blocked, mostly by an attestor; what was not acknowledged comes again."""


Fatal = Callable[[ExitCode], NoReturn]


def exit_now(code: int) -> NoReturn:
    """End the process without any clean-up but the logs, as a SIGKILL would.

    For the cases in which running on, even through `finally` blocks, could acknowledge something.
    """
    with suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
