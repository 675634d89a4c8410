"""An embedded Apache Kafka."""

import asyncio
import base64
import logging
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.free_ports import LOOPBACK, free_port
from watchword.streams.dev.java import find_java
from watchword.streams.dev.kafka_properties import Node, Ports, server_properties
from watchword.streams.dev.kafka_readiness import ready
from watchword.streams.dev.kafka_runtime import class_path, default_cache, pinned_jars
from watchword.streams.dev.server_process import Launch, ServerProcess

_log = logging.getLogger(__name__)

_STOP_S = 30.0
_PORT_TRIES = 5
_NOT_STARTED = "the embedded Kafka was not started"

# What the user has set for other Java programs is not the broker's business.
_ENVIRONMENT: Mapping[str, str] = MappingProxyType({"PATH": os.defpath, "LC_ALL": "C"})

_JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
)


def new_cluster_id() -> str:
    """Return a cluster id as Kafka makes them: a UUID in 22 characters."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):  # it would look like an option
            return text


@dataclass(frozen=True, slots=True)
class Membership:
    """A node's place in a cluster that somebody else laid out."""

    node: Node
    cluster_id: str


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """What may differ from the ordinary."""

    extra_properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lines of `server.properties`; they win over ours. The listener for clients is `CLIENT`."""
    port: int | None = None
    """The client port; otherwise a free one, which stays the same over `restart`."""
    cache: Path | None = None
    """The folder of the jars; otherwise `kafka_runtime.default_cache()`."""
    start_s: float = 90.0
    """How long a start may take."""


class EmbeddedKafka:
    """One Kafka node, broker and controller, with one folder of data, on 127.0.0.1.

    The process is killed when its parent ends, however that ends (on Linux; elsewhere unless the
    parent is killed outright).
    """

    def __init__(
        self,
        data_dir: Path,
        options: KafkaOptions | None = None,
        *,
        membership: Membership | None = None,
    ) -> None:
        """Touch nothing yet.

        Args:
            data_dir: The folder of this node alone; a later node on it meets its data.
            options: What may differ from the ordinary.
            membership: The place in a cluster; otherwise the node is a cluster of its own.
        """
        self.data_dir = data_dir.absolute()
        self._options = options or KafkaOptions()
        self._membership = membership
        self._node = None if membership is None else membership.node
        self._process: ServerProcess | None = None

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
        """The process id.

        Raises:
            ServerFailed: it was not started.
        """
        if self._process is None:
            raise ServerFailed(_NOT_STARTED)
        return self._process.pid

    @property
    def node(self) -> Node:
        """The node's id and ports.

        Raises:
            ServerFailed: it was not started.
        """
        if self._node is None:
            raise ServerFailed(_NOT_STARTED)
        return self._node

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.node.ports.client}"

    @property
    def internal_bootstrap_servers(self) -> str:
        """The address of the plain listener, for an administrator when `CLIENT` asks for more."""
        return f"{LOOPBACK}:{self.node.ports.internal}"

    @property
    def is_running(self) -> bool:
        """Whether the broker's process lives."""
        return self._process is not None and self._process.is_running

    @property
    def log(self) -> Path:
        """The file with the broker's messages."""
        return self.data_dir / "server.log"

    async def start(self) -> None:
        """Start the node, and return when it serves clients. 3 s; the first time 5 s.

        Of a cluster with several nodes, most must be started at once: alone, none is ready.
        Call it from a thread that lives as long as the node shall: the main thread.

        Raises:
            RuntimeChanged: a jar is not the one that was pinned.
            ServerFailed: it did not start; the end of its log is quoted.
        """
        if self.is_running:
            message = "the embedded Kafka runs already"
            raise ServerFailed(message)
        try:
            await self._start()
        except BaseException:  # also when the wait was cancelled: nothing may be left running
            await self.kill()
            raise

    async def stop(self) -> None:
        """Stop the node in good order; nothing happens if it does not run. 1 s.

        Raises:
            ServerFailed: it had to be killed.
        """
        if self._process is None:
            return
        self.resume()
        self._process.send(signal.SIGTERM)
        if not await self._process.ended(within_s=_STOP_S):
            await self.kill()
            message = f"the embedded Kafka did not stop within {_STOP_S:.0f} s and was killed"
            raise ServerFailed(message)
        self._process = None

    async def kill(self) -> None:
        """Kill the node with SIGKILL, and return when it is gone."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            await self._process.ended(within_s=_STOP_S)
            self._process = None

    async def restart(self) -> None:
        """Stop and start on the same ports and data.

        Raises:
            ServerFailed: it did not stop, or did not start.
        """
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Freeze the node, as a stalled machine would."""
        if self._process is not None:
            self._process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused node go on."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    async def remove(self) -> None:
        """Kill the node if it runs, and delete its data."""
        await self.kill()
        await asyncio.to_thread(shutil.rmtree, self.data_dir, ignore_errors=True)

    async def _start(self) -> None:
        java = await asyncio.to_thread(self._java_command)
        deadline = time.monotonic() + self._options.start_s
        tries = 1
        while not await self._start_once(java, deadline):
            output = "" if self._process is None else self._process.output()
            was_slow = time.monotonic() >= deadline
            await self.kill()
            taken = "Address already in use" in output and self._membership is None
            if was_slow or not taken or tries == _PORT_TRIES:
                why = (
                    f"was not ready within {self._options.start_s:.0f} s"
                    if was_slow
                    else "did not start"
                )
                message = f"the embedded Kafka {why}; the end of {self.log}:\n{output}"
                raise ServerFailed(message)
            self._node = None
            tries += 1

    async def _start_once(self, java: list[str], deadline: float) -> bool:
        """Start the node; tell whether it serves clients, or ended or was too slow."""
        node = self._node = self._node or _alone(self._options.port)
        await asyncio.to_thread(self._prepare, node, java)
        process = self._process = self._spawn(java)
        return await ready(
            node.ports.internal,
            node_id=node.node_id,
            gave_up=lambda: not process.is_running or time.monotonic() >= deadline,
        )

    def _java_command(self) -> list[str]:
        """Return `java` with its options and the checked class path."""
        java = find_java()
        path = class_path(self._options.cache or default_cache(), pinned_jars())
        # Native libraries are unpacked there; the system's folder may forbid to run what it holds.
        scratch = self.data_dir / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return [str(java), *_JVM, f"-Djava.io.tmpdir={scratch}", "-cp", path]

    def _prepare(self, node: Node, java: list[str]) -> None:
        """Write `server.properties` (it may hold secrets), and format the data folder once."""
        properties = self.data_dir / "server.properties"
        properties.touch(mode=0o600)
        data = self.data_dir / "logs"
        properties.write_text(server_properties(node, data, self._options.extra_properties))
        formatted = self.data_dir / "cluster-id"
        if formatted.exists():
            return
        shutil.rmtree(data, ignore_errors=True)  # what an interrupted start left
        cluster_id = new_cluster_id() if self._membership is None else self._membership.cluster_id
        done = subprocess.run(  # noqa: S603 - no shell, and the command is ours
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(_ENVIRONMENT),
        )
        if done.returncode != 0:
            message = f"Kafka's data folder was not formatted:\n{done.stdout}"
            raise ServerFailed(message)
        formatted.write_text(cluster_id)
        _log.info("a Kafka data folder was formatted")

    def _spawn(self, java: list[str]) -> ServerProcess:
        launch = Launch(
            command=[*java, "kafka.Kafka", str(self.data_dir / "server.properties")],
            log=self.log,
            folder=self.data_dir,
            environment=_ENVIRONMENT,
            account=None,
            on_parent_death=signal.SIGKILL,
        )
        return ServerProcess.spawn(launch)


def _alone(port: int | None) -> Node:
    ports = Ports(client=port or free_port(), internal=free_port(), controller=free_port())
    return Node(node_id=1, ports=ports, controllers={1: ports.controller})
