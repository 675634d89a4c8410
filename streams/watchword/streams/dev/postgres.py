"""An embedded PostgreSQL."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from watchword.streams.dev import postgres_files
from watchword.streams.dev.accounts import ServerAccount, server_account
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.free_ports import LOOPBACK, free_port
from watchword.streams.dev.postgres_cluster import (
    ENVIRONMENT,
    SUPERUSER,
    ClusterMaker,
    forget_stale_lock,
)
from watchword.streams.dev.server_process import Launch, ServerProcess, children_of, is_alive

_log = logging.getLogger(__name__)

_START_S = 60.0
_STOP_S = 30.0
_ORPHANS_S = 5.0
_POLL_S = 0.01
_PORT_TRIES = 5
_STATE_LINE = 7
_NOT_STARTED = "the embedded PostgreSQL was not started"
# A Unix socket's path has room for 107 bytes on Linux and 103 on macOS, the file's name included.
_SOCKET_FOLDER_BYTES = 80

_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": LOOPBACK,
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Our statements are short: compiling them costs more than it saves.
        "jit": "off",
    }
)
_NOT_DURABLE: Mapping[str, str] = MappingProxyType(
    {
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    }
)

StopMode = Literal["fast", "immediate"]


class EmbeddedPostgres:
    """A PostgreSQL server with one folder of data, on 127.0.0.1 and a Unix socket.

    Everybody signs in by password (SCRAM-SHA-256); the superuser's is random and lies in
    `data_dir/superuser`, mode 0600. The server ends when its parent does, however that ends, by an
    immediate shutdown (on Linux; elsewhere unless the parent is killed outright).
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = True,
        extra_settings: Mapping[str, str] | None = None,
        port: int | None = None,
        template: Path | None = None,
    ) -> None:
        """Touch nothing yet.

        Args:
            data_dir: The folder of this server alone; a later server on it meets its data.
            durable: False trades safety after a power cut for speed. A killed server loses
                nothing either way.
            extra_settings: `postgresql.conf` settings; they win over ours.
            port: The TCP port; otherwise a free one, which stays the same over `restart`.
            template: Where an empty cluster is kept, or will be, so that `initdb` is spared.
        """
        self.data_dir = data_dir.absolute()
        self._durable = durable
        self._extra_settings = dict(extra_settings or {})
        self._fixed_port = port
        self._port = port
        self._template = template
        self._account: ServerAccount | None = None
        self._cluster = self.data_dir / "cluster"
        self._process: ServerProcess | None = None
        self._password = ""
        self._paused: list[int] = []

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    @property
    def pid(self) -> int:
        """The postmaster's process id.

        Raises:
            ServerFailed: it was not started.
        """
        return self._started().pid

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1.

        Raises:
            ServerFailed: it was not started.
        """
        if self._port is None:
            raise ServerFailed(_NOT_STARTED)
        return self._port

    @property
    def is_running(self) -> bool:
        """Whether the server's process lives."""
        return self._process is not None and self._process.is_running

    @property
    def log(self) -> Path:
        """The file with the server's messages."""
        return self.data_dir / "server.log"

    def dsn(self, database: str = "postgres") -> str:
        """Return the superuser's address of a database, with the password in it: keep it secret."""
        return f"postgresql://{SUPERUSER}:{self._password}@{LOOPBACK}:{self.port}/{database}"

    async def start(self) -> None:
        """Start the server, and return when it accepts connections. 0.2 s; the first time 3 s.

        Call it from a thread that lives as long as the server shall: the main thread.

        Raises:
            ServerFailed: it did not; the end of its log is quoted.
        """
        if self.is_running:
            message = "the embedded PostgreSQL runs already"
            raise ServerFailed(message)
        try:
            await self._start()
        except BaseException:  # also when the wait was cancelled: nothing may be left running
            await self.kill()
            raise

    async def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; nothing happens if it does not run.

        Args:
            mode: `fast` rolls back what is open and writes a checkpoint; `immediate` is a crash
                that the next start recovers from.

        Raises:
            ServerFailed: it had to be killed.
        """
        if self._process is None:
            return
        self.resume()
        self._process.send(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        if not await self._process.ended(within_s=_STOP_S):
            await self.kill()
            message = f"the embedded PostgreSQL did not stop within {_STOP_S:.0f} s and was killed"
            raise ServerFailed(message)
        self._process = None

    async def kill(self) -> None:
        """Kill the postmaster with SIGKILL, and return when none of its backends is left."""
        if self._process is None:
            return
        backends = children_of(self._process.pid)
        self._process.send(signal.SIGKILL)
        await self._process.ended(within_s=_STOP_S)
        self._process = None
        self.resume()
        deadline = time.monotonic() + _ORPHANS_S
        while backends := [pid for pid in backends if is_alive(pid)]:
            if time.monotonic() >= deadline:
                _signal(backends, signal.SIGKILL)
            await asyncio.sleep(_POLL_S)

    async def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same port and data.

        Raises:
            ServerFailed: it did not stop, or did not start.
        """
        await self.stop(mode)
        await self.start()

    async def remove(self) -> None:
        """Kill the server if it runs, and delete its data, wherever they lie."""
        await self.kill()
        await asyncio.to_thread(postgres_files.remove, self.data_dir)

    def pause(self) -> None:
        """Freeze the postmaster and every backend, as a stalled machine would.

        Raises:
            ServerFailed: it was not started.
        """
        postmaster = self.pid
        # The postmaster first, so that no backend is born meanwhile.
        _signal([postmaster], signal.SIGSTOP)
        self._paused = [postmaster, *children_of(postmaster)]
        _signal(self._paused, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on; nothing happens if it was not paused."""
        _signal(self._paused, signal.SIGCONT)
        self._paused = []

    async def _start(self) -> None:
        self._account = server_account()
        bin_folder = await asyncio.to_thread(self._prepare)
        deadline = time.monotonic() + _START_S
        tries = 0
        while not await self._start_once(bin_folder, deadline):
            tries += 1
            output = self._started().output()
            address_taken = "could not bind" in output and self._fixed_port is None
            # Backends of a killed predecessor hold its shared memory until they notice.
            orphans = "pre-existing shared memory block" in output
            if address_taken and tries < _PORT_TRIES:
                self._port = None
            elif not (orphans and time.monotonic() < deadline):
                message = f"the embedded PostgreSQL did not start:\n{output}"
                raise ServerFailed(message)
            await asyncio.sleep(_POLL_S)

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ServerFailed(_NOT_STARTED)
        return self._process

    def _prepare(self) -> Path:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        bin_folder = postgres_files.binaries(self._account)
        self._cluster = postgres_files.cluster_folder(self.data_dir, self._account)
        secret = self.data_dir / "superuser"
        if not self._cluster.is_dir():
            maker = ClusterMaker(
                bin_folder, self._account, sync=self._durable, template=self._template
            )
            maker.make(self._cluster, secret)
            _log.info("a PostgreSQL cluster was created")
        self._password = secret.read_text()
        forget_stale_lock(self._cluster)
        return bin_folder

    async def _start_once(self, bin_folder: Path, deadline: float) -> bool:
        """Start the server; tell whether it accepts connections or ended."""
        if self._port is None:
            self._port = free_port()
        settings = {**_SETTINGS, **({} if self._durable else _NOT_DURABLE)}
        settings["port"] = str(self._port)
        short = len(os.fsencode(self._cluster)) <= _SOCKET_FOLDER_BYTES
        settings["unix_socket_directories"] = str(self._cluster) if short else ""
        settings |= self._extra_settings
        launch = Launch(
            command=[
                str(bin_folder / "postgres"),
                f"-D{self._cluster}",
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            log=self.log,
            folder=self._cluster,
            environment=ENVIRONMENT,
            account=self._account,
            on_parent_death=signal.SIGQUIT,
        )
        process = self._process = ServerProcess.spawn(launch)
        while not self._is_ready(process.pid):
            if not process.is_running:
                return False
            if time.monotonic() >= deadline:
                await self.kill()
                message = f"the embedded PostgreSQL was not ready within {_START_S:.0f} s:\n{process.output()}"
                raise ServerFailed(message)
            await asyncio.sleep(_POLL_S)
        return True

    def _is_ready(self, pid: int) -> bool:
        """Read the lock file as `pg_ctl` does: the first line is the process, the eighth its state.

        A hot standby takes connections too.
        """
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return (
            len(lines) > _STATE_LINE
            and lines[0] == str(pid)
            and lines[_STATE_LINE].strip() in ("ready", "standby")
        )


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
