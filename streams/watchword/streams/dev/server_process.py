"""One server process: started, watched, signalled and ended by its process id."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from watchword.streams.dev import lifeline
from watchword.streams.dev.accounts import ServerAccount

_POLL_S = 0.01
_TAIL_BYTES = 4096
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server."""

    command: Sequence[str]
    """An absolute path and arguments. No secrets: everybody on the machine can read them."""
    log: Path
    """Where its output is appended."""
    folder: Path
    """Its working directory."""
    environment: Mapping[str, str]
    account: ServerAccount | None
    on_parent_death: signal.Signals


class ServerProcess:
    """A server whose output goes to a log file and which ends when we do."""

    def __init__(self, popen: subprocess.Popen[bytes], launch: Launch, log_start: int) -> None:
        """Take over a started process; use `spawn`."""
        self._popen = popen
        self._log = launch.log
        self._log_start = log_start
        # When the interpreter exits, also where the kernel keeps no tie.
        weakref.finalize(self, _end, popen, launch.on_parent_death, os.getpid())

    @classmethod
    def spawn(cls, launch: Launch) -> Self:
        """Start the server.

        It gets the signal `on_parent_death` when the calling thread ends: call this from a thread
        that lives as long as the server shall.
        """
        account = launch.account
        uid, gid = (-1, -1) if account is None else (account.uid, account.gid)
        tie = [str(os.getpid()), str(int(launch.on_parent_death)), str(uid), str(gid)]
        with launch.log.open("ab") as output:
            log_start = output.tell()
            popen = subprocess.Popen(  # noqa: S603 - no shell, and the command is the launcher's own
                [sys.executable, "-I", "-S", lifeline.__file__, *tie, *launch.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=launch.folder,
                env=dict(launch.environment),
                start_new_session=True,  # Ctrl-C is for us: we stop the servers in our order
            )
        return cls(popen, launch, log_start)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status (negative: the signal), or None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """Return the end of what this process wrote to its log, at most 4 KiB."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            return log.read().decode(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self._popen.send_signal(number)

    async def ended(self, *, within_s: float) -> bool:
        """Wait for the end of the process; tell whether it came in time."""
        deadline = time.monotonic() + within_s
        while self.is_running:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def _end(popen: subprocess.Popen[bytes], number: signal.Signals, owner: int) -> None:
    # A fork of ours has no business with the server.
    if os.getpid() != owner or popen.poll() is not None:
        return
    popen.send_signal(number)
    try:
        popen.wait(_END_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


def children_of(pid: int) -> list[int]:
    """Return the ids of the process's living children."""
    return [child for child, parent, state in _processes() if parent == pid and state != "Z"]


def is_alive(pid: int) -> bool:
    """Tell whether a process that need not be our child runs; one that waits to be reaped does not."""
    return any(other == pid and state != "Z" for other, _, state in _processes())


def _processes() -> list[tuple[int, int, str]]:
    """Return (pid, parent, state letter) of every process."""
    if sys.platform == "linux":
        # Not every container has `ps`.
        found: list[tuple[int, int, str]] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    text = (entry / "stat").read_text()
                except OSError:
                    continue  # it ended while we looked
                state, parent = text.rpartition(")")[2].split()[:2]
                found.append((int(entry.name), int(parent), state))
        return found
    listing = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,state="], check=True, capture_output=True, text=True
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return [(int(pid), int(parent), state[0]) for pid, parent, state in rows]
