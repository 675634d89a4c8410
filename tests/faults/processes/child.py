"""One process of the deployment: started through the command line, killed, paused and watched."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.folders import ROOT
from watchword.streams.dev.server_process import Launch, ServerProcess

SEAMS = "tests.faults.seams.points"
"""The module that a process imports at its start, by the product's one seam."""

WATCHWORD = str(Path(sys.executable).with_name("watchword"))
"""The command line, as it was installed."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process."""

    name: str
    status: int
    """The exit status; negative: the signal."""
    was_meant: bool
    at: float
    """Monotonic seconds."""


@dataclass(slots=True)
class Child:
    """A process under a stable name, over its restarts."""

    name: str
    role: str
    """`worker`, `signer`, `relay`, `keeper` or `gateway`: the command."""
    folder: Path
    """Of this process alone: its working directory, its log, its armed points."""
    environment: Mapping[str, str]
    health_port: int
    extra: dict[str, str] = field(default_factory=dict[str, str])
    """Variables for the next start: a clock that is wrong, a guard that is off."""
    installed: Path | None = None
    """A folder with packages that it finds, as if they were installed."""
    source: str | None = None
    """The `PYTHONPATH` of another release that is started instead of this one."""
    process: ServerProcess | None = None
    is_held: bool = False
    """Nobody is to start it again for now."""
    is_meant_to_end: bool = False
    exits: list[Exit] = field(default_factory=list[Exit])
    started_at: float = 0.0

    @property
    def log(self) -> Path:
        """The file with what the process says."""
        return self.folder / f"{self.name}.log"

    @property
    def points(self) -> Path:
        """The folder in which the process looks for armed points."""
        return self.folder / "points"

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.is_running

    def start(self) -> None:
        """Start it, in the main thread."""
        self.points.mkdir(parents=True, exist_ok=True)
        self.is_meant_to_end = False
        self.started_at = time.monotonic()
        python_path = [str(ROOT)] if self.source is None else [self.source, str(ROOT)]
        if self.installed is not None:
            python_path.append(str(self.installed))
        if "FAULTS_CLOCK_SHIFT_S" in self.extra:
            python_path.insert(0, str(ROOT / "tests" / "faults" / "seams" / "clock"))
        self.process = ServerProcess.spawn(
            Launch(
                command=[WATCHWORD, self.role],
                log=self.log,
                folder=self.folder,
                environment={
                    "PATH": os.defpath,
                    "PYTHONPATH": os.pathsep.join(python_path),
                    "WATCHWORD_FAILPOINTS_MODULE": SEAMS,
                    "FAULTS_POINTS": str(self.points),
                    **self.environment,
                    **self.extra,
                },
                account=None,
                on_parent_death=signal.SIGKILL,
            )
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that ends the process is meant to."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.is_meant_to_end = True
        if self.process is not None:
            self.process.send(number)

    def runs(self, source: str) -> bool:
        """Tell whether what runs was started from this `PYTHONPATH` (proc(5), environ)."""
        if self.process is None:
            return False
        found = Path(f"/proc/{self.process.pid}/environ").read_bytes()
        return f"PYTHONPATH={source}".encode() in found

    def reap(self) -> Exit | None:
        """Return how the process ended, once for each end."""
        if self.process is None or (status := self.process.exit_status) is None:
            return None
        self.process = None
        ended = Exit(self.name, status, self.is_meant_to_end, time.monotonic())
        self.exits.append(ended)
        return ended

    def arm(self, point: str, action: str = "kill", nth: int = 1) -> None:
        """Have the process end (`kill`) or stop (`stop`) itself when it reaches the point for the nth time."""
        self.is_meant_to_end = self.is_meant_to_end or action == "kill"
        partial = self.points / f".{point}"
        partial.write_text(f"{action} {nth}")
        partial.rename(self.points / point)

    def disarm(self, point: str) -> bool:
        """Take the arming back; tell whether the point had been reached."""
        hit = self.points / f"{point}.hit"
        if hit.exists():
            hit.unlink()
            return True
        (self.points / point).unlink(missing_ok=True)
        return False

    def was_hit(self, point: str) -> bool:
        """Tell whether the armed point was reached."""
        return (self.points / f"{point}.hit").exists()
