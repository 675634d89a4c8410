"""Watchword's own processes, as real ones: started, waited for, and drained in order."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from watchword.streams.dev.data_folder import DataFolder
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.free_ports import LOOPBACK
from watchword.streams.dev.server_process import Launch, ServerProcess

_POLL_S = 0.05
_DRAIN_S = 15.0
_NOT_FOR_CHILDREN = ("WATCHWORD_", "KAFKA_", "PG", "DATABASE_URL", "LOG_LEVEL", "LOG_FORMAT")
"""Variables that would win over the configuration that `dev` wrote."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process. `health_port` serves its readiness; those of one `stage` drain together."""

    name: str
    stage: int
    process: ServerProcess
    health_port: int

    @property
    def log(self) -> str:
        """Return the end of its log."""
        return self.process.output()


class Children:
    """The processes of one deployment."""

    def __init__(self, folder: DataFolder) -> None:
        """Start nothing yet."""
        self._folder = folder
        self.running: list[Child] = []

    def start(
        self,
        name: str,
        command: str,
        health_port: int,
        *,
        stage: int,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start `watchword <command>`; it ends when we do, whatever ends us.

        Call it from the main thread: the tie is to the thread that starts a process.
        """
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(_NOT_FOR_CHILDREN)
        }
        process = ServerProcess.spawn(
            Launch(
                command=[sys.executable, "-m", "watchword.streams.cli", command],
                log=self._folder.logs / f"{name}.log",
                folder=self._folder.root,
                environment=environment
                | {"WATCHWORD_CONFIG": str(self._folder.config)}
                | dict(variables or {}),
                account=None,
                on_parent_death=signal.SIGTERM,
            )
        )
        self.running.append(Child(name, stage, process, health_port))

    async def ready(self, *, within_s: float) -> None:
        """Return when every process says that it is ready.

        Raises:
            ServerFailed: one has ended, or is not ready in time; its log and its reasons are quoted.
        """
        deadline = time.monotonic() + within_s
        async with asyncio.TaskGroup() as group:
            for child in self.running:
                group.create_task(_until_ready(child, deadline))

    async def stop(self) -> list[str]:
        """Drain stage by stage, the last one first; return what did not end well."""
        bad: list[str] = []
        for stage in sorted({child.stage for child in self.running}, reverse=True):
            leaving = [child for child in self.running if child.stage == stage]
            await asyncio.gather(*(_drained(child) for child in leaving))
            bad += [
                f"{child.name} ({child.process.exit_status})"
                for child in leaving
                if child.process.exit_status != 0
            ]
        self.running.clear()
        return bad

    def dead(self) -> list[Child]:
        """Return processes that have ended by themselves."""
        return [child for child in self.running if not child.process.is_running]


async def _drained(child: Child) -> None:
    child.process.send(signal.SIGTERM)
    if not await child.process.ended(within_s=_DRAIN_S):
        child.process.send(signal.SIGKILL)
        await child.process.ended(within_s=_DRAIN_S)


async def _until_ready(child: Child, deadline: float) -> None:
    said = "it has not answered yet"
    while True:
        if not child.process.is_running:
            message = f"{child.name} has ended ({child.process.exit_status}):\n{child.log}"
            raise ServerFailed(message)
        status, body = await _get(child.health_port, "/readyz")
        if status == 200:  # noqa: PLR2004 - HTTP's OK
            return
        said = body or said
        if time.monotonic() > deadline:
            message = f"{child.name} is not ready: {said}\n{child.log}"
            raise ServerFailed(message)
        await asyncio.sleep(_POLL_S)


async def _get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of a health listener's answer; 0 if nobody listens."""
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return 0, ""
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 5)
    except (OSError, TimeoutError):
        return 0, ""
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    parts = head.split(b" ", 2)
    return (int(parts[1]) if len(parts) > 1 else 0), body.decode(errors="replace").strip()
