"""A process whose event loop is blocked ends, and says by what; one that was only paused goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from tests.support.folders import ROOT
from tests.support.watched_loop import LIMIT_S
from watchword.streams.worker.exits import ExitCode


@contextmanager
def looping(way: str) -> "Generator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.watched_loop", way],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_blocked_loop_ends_the_process_and_names_the_attestor_and_the_line() -> None:
    """An operator has to know whom to write to, and the author where to look."""
    with looping("sleep") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == ExitCode.STALLED
    (line,) = [json.loads(one) for one in said.splitlines() if "blocked" in one]
    assert line["attestor"] == "acme-hello"
    assert "watched_loop.py" in line["stack"][0]
    assert line["stack"][0].endswith(" _sleeps")


def test_loop_that_is_blocked_with_the_interpreter_ends_too() -> None:
    """A regular expression that went astray is the likeliest of all, and no thread of Python's runs beside it."""
    with looping("regex") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGVTALRM
    assert "watched_loop.py" in said


def test_paused_process_goes_on() -> None:
    """A machine that was suspended, or a debugger: nothing was blocked."""
    with looping("turn") as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(3 * LIMIT_S)  # the pause itself
        process.send_signal(signal.SIGCONT)
        process.communicate("", timeout=30)
    assert process.returncode == 0
