"""Runs one command's handler, once: a program of its own, so that it outlives an agent that is killed.

`python -I supervisor.py FOLDER HANDLER SECONDS NODE ID KIND`, with nothing but the standard library.

What is run is decided by files in the command's folder, and by nothing that could be lost with a process:
  1. `running` is locked for as long as this process lives: nobody else runs the command meanwhile;
  2. `started` is made, exclusively and flushed to the disk, before the handler begins: if it is there, the
     handler ran, or nearly did, and never does again;
  3. `ended` says how the handler ended, for the agent that is there then.
A machine that goes down between 2 and 3 leaves `started` alone: the command was interrupted.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

LOCK, STARTED, ENDED, PAYLOAD = "running", "started", "ended", "payload"
NOT_OURS = 3
"""Exit status: somebody else runs it, or it was run."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GRACE_S = 5.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def supervise(folder: Path, handler: str, limit_s: float, variables: dict[str, str]) -> int:
    """Run the handler unless it was run before; return the exit status of this process."""
    lock = os.open(folder / LOCK, _FLAGS, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(folder / STARTED, _FLAGS | os.O_EXCL, 0o600))
    except (BlockingIOError, FileExistsError):
        return NOT_OURS
    _flush(folder)
    found = _run(folder, handler, limit_s, variables)
    _write(folder, found)
    return 0


def _run(folder: Path, handler: str, limit_s: float, variables: dict[str, str]) -> dict[str, Any]:
    """Return how the handler ended. It has a session of its own, so that all of it can be stopped."""
    environment = {"PATH": _PATH, "LANG": "C.UTF-8", **variables}
    try:
        with (folder / PAYLOAD).open("rb") as payload:
            process = subprocess.Popen(  # noqa: S603 - no shell; the agent has checked whose file it is
                [handler], stdin=payload, cwd="/", env=environment, start_new_session=True
            )
    except OSError:
        return {"result": "no-handler", "exitStatus": None}
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _stop(process)
        return {"result": "timed-out", "exitStatus": None}
    except _Told:
        _stop(process)
        return {"result": "interrupted", "exitStatus": None}
    return {"result": "done" if status == 0 else "failed", "exitStatus": status}


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the handler and what it has started: politely, and then at once."""
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def _write(folder: Path, found: dict[str, Any]) -> None:
    beside = folder / f".new-{ENDED}"
    descriptor = os.open(beside, _FLAGS | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, json.dumps(found, sort_keys=True, separators=(",", ":")).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(folder / ENDED)
    _flush(folder)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Told(BaseException):
    """The machine is going down, or somebody wants us to stop."""


def _told(number: int, frame: object) -> NoReturn:
    del number, frame
    raise _Told


def main(arguments: list[str]) -> int:
    """Take the arguments of the command line."""
    folder, handler, seconds, node, ident, kind = arguments
    signal.signal(signal.SIGTERM, _told)
    variables = {
        "WATCHWORD_NODE_ID": node,
        "WATCHWORD_COMMAND_ID": ident,
        "WATCHWORD_COMMAND_KIND": kind,
    }
    return supervise(Path(folder), handler, float(seconds), variables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
