"""The processes of the deployment, each started again when it ends, as an orchestrator would."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.faults.processes.child import WATCHWORD, Child, Exit
from watchword.streams.dev.free_ports import LOOPBACK, free_port

_LOOK_S = 0.05
_REST_S = 0.3
"""Between the end of a process and its next start."""
_READY_S = 60.0
_DRAIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of each there are."""

    workers: int = 3
    relays: int = 2
    keepers: int = 2
    gateways: int = 2


@dataclass(slots=True)
class Fleet:
    """Every process of the deployment, by its name."""

    folder: Path
    environment: Mapping[str, str]
    sizes: Sizes = field(default_factory=Sizes)
    guard_off: str | None = None
    """The switch of `tests.guards.switches` that every process throws at its start."""
    installed: Path | None = None
    """A folder with packages that workers find, as if they were installed."""
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    exits: list[Exit] = field(default_factory=list[Exit])
    gateway_ports: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        """Name everybody; start nobody."""
        self._add("signer", "signer", {})
        counts = (
            ("worker", self.sizes.workers),
            ("relay", self.sizes.relays),
            ("keeper", self.sizes.keepers),
        )
        for role, count in counts:
            for nth in range(count):
                name = f"{role}-{nth}"
                self._add(name, role, {"WATCHWORD_WORKER__NAME": name})
        for nth in range(self.sizes.gateways):
            self.gateway_ports.append(free_port())
            port = {"WATCHWORD_GATEWAY__PORT": str(self.gateway_ports[-1])}
            self._add(f"gateway-{nth}", "gateway", port)

    def _add(self, name: str, role: str, own: Mapping[str, str]) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        environment = {
            **self.environment,
            f"WATCHWORD_{role.upper()}__HEALTH_PORT": str(port),
            **own,
        }
        extra = {"FAULTS_GUARD_OFF": self.guard_off} if self.guard_off else {}
        child = Child(name, role, folder, environment, port, extra)
        if role == "worker" and self.installed is not None:
            child.installed = self.installed
        self.children[name] = child

    def of(self, role: str) -> list[Child]:
        """Return the processes of a role."""
        return [child for child in self.children.values() if child.role == role]

    @property
    def logs(self) -> list[Path]:
        """What the processes say."""
        return [child.log for child in self.children.values() if child.log.exists()]

    def command(self, *arguments: str, within_s: float = 120) -> str:
        """Run one command of the product and return what it prints.

        Raises:
            CommandFailed: it exited with another status than 0.
        """
        done = subprocess.run(
            [WATCHWORD, *arguments],
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        if done.returncode:
            raise CommandFailed(arguments, done.returncode, done.stdout + done.stderr)
        return done.stdout

    async def run(self) -> None:
        """Start everybody who has ended, until cancelled."""
        while True:
            for child in self.children.values():
                if (ended := child.reap()) is not None:
                    self.exits.append(ended)
                if child.process is None and not child.is_held and self._has_rested(child):
                    child.start()
            await asyncio.sleep(_LOOK_S)

    @staticmethod
    def _has_rested(child: Child) -> bool:
        return not child.exits or time.monotonic() >= child.exits[-1].at + _REST_S

    def is_ready(self, child: Child) -> bool:
        """Tell whether a process says that it is ready."""
        return self._lacks(child) == ""

    @staticmethod
    def _lacks(child: Child) -> str:
        """Return why a process says that it is not ready; nothing if it is."""
        try:
            with urlopen(f"http://{LOOPBACK}:{child.health_port}/readyz", timeout=2) as response:
                return "" if response.status == HTTPStatus.OK else str(response.status)
        except HTTPError as error:
            return error.read().decode(errors="replace").strip()
        except (URLError, OSError, ValueError) as error:
            return type(error).__name__

    async def await_ready(
        self, children: Iterable[Child] | None = None, *, within_s: float = _READY_S
    ) -> None:
        """Return when these processes, or all, are ready.

        Raises:
            TimeoutError: some are not; it says why.
        """
        waiting = list(self.children.values() if children is None else children)
        deadline = time.monotonic() + within_s
        while waiting:
            for child in list(waiting):
                if child.is_running and await asyncio.to_thread(self.is_ready, child):
                    waiting.remove(child)
            if waiting and time.monotonic() >= deadline:
                why = ", ".join(f"{child.name} ({self._lacks(child)})" for child in waiting)
                message = f"not ready within {within_s:.0f} s: {why}"
                raise TimeoutError(message)
            await asyncio.sleep(_LOOK_S)

    def page(self, child: Child) -> bytes:
        """Return the metrics page of a process, or nothing if it does not answer."""
        try:
            with urlopen(f"http://{LOOPBACK}:{child.health_port}/metrics", timeout=3) as response:
                found: bytes = response.read()
                return found
        except (URLError, OSError, ValueError):
            return b""

    def metric(self, child: Child, name: str) -> float:
        """Return the sum of a metric's series on a process's page."""
        total = 0.0
        for line in self.page(child).decode().splitlines():
            if line.startswith(name) and line[len(name) : len(name) + 1] in (" ", "{"):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def command_lines(self) -> list[tuple[str, bytes]]:
        """Return what everybody on the machine can read of how the processes were started."""
        found: list[tuple[str, bytes]] = []
        for child in self.children.values():
            if child.process is not None:
                path = Path(f"/proc/{child.process.pid}/cmdline")
                try:
                    found.append((f"command line of {child.name}", path.read_bytes()))
                except OSError:
                    continue
        return found

    async def stop(self) -> dict[str, int]:
        """Terminate everybody in good order, and return the status of each; kill who takes too long."""
        for child in self.children.values():
            child.is_held = True
            child.send(signal.SIGCONT)
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + _DRAIN_S
        while any(child.is_running for child in self.children.values()):
            if time.monotonic() >= deadline:
                for child in self.children.values():
                    child.send(signal.SIGKILL)
            await asyncio.sleep(_LOOK_S)
        return {
            child.name: ended.status
            for child in self.children.values()
            if (ended := child.reap()) is not None
        }

    def said(self, child: Child, event: str) -> int:
        """Return how many lines of a process's log have this event."""
        if not child.log.exists():
            return 0
        needle = json.dumps(event)
        return sum(needle in line for line in child.log.read_text(errors="replace").splitlines())


class CommandFailed(Exception):
    """A command of the product failed."""

    def __init__(self, arguments: Sequence[str], status: int, output: str) -> None:
        """Keep what it was and said."""
        super().__init__(f"watchword {' '.join(arguments)} exited with {status}:\n{output[-2000:]}")
        self.status = status
