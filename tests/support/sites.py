"""A deployment of real processes, reached by the command line alone. It has neither relay nor keeper: nobody waits for them."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from tests.support.command_line import completed
from watchword.schemas.topics import TRUST_BUNDLE
from watchword.streams.dev.free_ports import free_ports

READY_S = 90.0

_CLI = (sys.executable, "-m", "watchword.streams.cli")
_LISTENERS = ("signer", "worker", "gateway", "gateway_health")
_READY_AT = {"signer": "signer", "worker": "worker", "gateway": "gateway_health"}
"""Who tells whether a process is ready; the others are not asked."""
_CONFIG = """\
[deployment]
trust_domain = "{domain}.example"
approval_retry_after_s = 1
[database]
url_file = "{folder}/url"
[kafka]
bootstrap_servers = "{kafka}"
[keys]
directory = "{folder}/keys"
[signer]
socket = "{folder}/s.sock"
health_port = {signer}
[worker]
name = "accept"
health_port = {worker}
[gateway]
port = {gateway}
health_port = {gateway_health}
[topics]
replication_factor = 1
min_insync_replicas = 1
"""


def configured(folder: Path, dsn: str, kafka: str, attestors: str, **paths: Path) -> dict[str, int]:
    """Write the configuration of a deployment into its folder; return who listens at which port.

    `attestors` is its TOML for them, with `{folder}` and what else is in `paths`. The broker is shared: what a
    deployment before has published there would be another one's keys.
    """
    forget_keys(kafka)
    folder.chmod(0o700)
    ports = dict(zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True))
    (folder / "url").touch(mode=0o600)
    (folder / "url").write_text(dsn)
    domain = folder.name.replace("_", "-")  # a temporary folder's name is no DNS name
    (folder / "config.toml").write_text(
        (_CONFIG + attestors).format(folder=folder, domain=domain, kafka=kafka, **ports, **paths)
    )
    return ports


def forget_keys(kafka: str) -> None:
    """Return when a broker has no topic with the keys of another deployment any more."""
    with ThreadPoolExecutor(1) as elsewhere:  # there may be a loop here already
        elsewhere.submit(asyncio.run, _forgotten(kafka)).result()


async def _forgotten(kafka: str) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        deadline = time.monotonic() + READY_S
        while TRUST_BUNDLE in await admin.list_topics():
            assert time.monotonic() < deadline, f"{TRUST_BUNDLE} cannot be deleted"
            with suppress(KafkaError):
                await admin.delete_topics([TRUST_BUNDLE])
            await asyncio.sleep(0.1)
    finally:
        await admin.close()


@dataclass
class Site:
    """A deployment in a folder of its own."""

    folder: Path
    ports: Mapping[str, int]

    @property
    def gateway(self) -> str:
        """The gateway's URL."""
        return f"http://127.0.0.1:{self.ports['gateway']}"

    def environment(self, **more: str) -> dict[str, str]:
        """Return what processes are started with."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "WATCHWORD_CONFIG": str(self.folder / "config.toml"),
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of one command."""
        return [*_CLI, *arguments]

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start one command, and listen to it."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )

    def run(self, *arguments: str) -> str:
        """Return what one command prints; it has to succeed."""
        done = completed(*arguments, environment=self.environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON that one command prints."""
        return json.loads(self.run(*arguments, "--json"))

    def prepare(self) -> None:
        """Make keys and topics, and publish the keys, as an operator does once."""
        self.run("keys", "init")
        self.run("topics", "apply")
        self.run("trust", "publish")

    def spawned(self, command: str, log: Path, **environment: str) -> "subprocess.Popen[bytes]":
        """Start one process of the service, which writes to a log."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [*_CLI, command], stdout=file, stderr=file, env=self.environment(**environment)
            )

    @contextmanager
    def process(self, command: str, **environment: str) -> Generator[None]:
        """Have one process of the service; it ends in good order."""
        log = self.folder / f"{command}.log"
        with self.spawned(command, log, **environment) as process:
            try:
                yield
                process.terminate()
                assert process.wait(30) == 0, log.read_text()
            finally:
                process.kill()

    @contextmanager
    def serving(
        self, *commands: str, pools: Sequence[str] = (), **environment: str
    ) -> Generator[None]:
        """Have a deployment that is ready, with these processes, and with pools of a tenant `acme`, if it is to have any."""
        self.prepare()
        with ExitStack() as processes:
            for command in commands:
                processes.enter_context(self.process(command, **environment))
            for command in commands:
                if (listener := _READY_AT.get(command)) is not None:
                    self.await_ready(listener)
            if pools:
                self.run("tenants", "create", "acme")
            for pool in pools:
                self.run("pools", "create", "acme", pool)
            yield

    def await_ready(self, listener: str) -> None:
        """Return when who listens there says that it is ready."""
        deadline = time.monotonic() + READY_S
        while not is_ready(self.ports[listener]):
            logs = "".join(log.read_text() for log in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"{listener} is not ready: {logs}"
            time.sleep(0.1)

    def bootstrapped(self, name: str) -> Path:
        """Return the state directory of a new machine that knows the service's keys."""
        state = self.folder / name
        pin = self.run("keys", "pin").strip()
        self.run(
            "agent", "bootstrap", "--state", str(state), "--gateway", self.gateway, "--pin", pin
        )
        return state

    def joining(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start the agent of a new machine; another name is another disk."""
        return self.started(
            "agent", "join", "--state", str(self.bootstrapped(name)), "--gateway", self.gateway,
            "--json", "--give-up-after", "2m", *arguments,
        )  # fmt: skip


def joined(machine: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return what the agent of a machine shows once it is a node."""
    stdout, stderr = machine.communicate(timeout=150)
    assert machine.returncode == 0, stderr
    shown: dict[str, Any] = json.loads(stdout)
    return shown


def until_said(process: "subprocess.Popen[str]", words: str) -> str:
    """Return the line of its messages in which a process says these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line.strip()
    pytest.fail(f"it ended ({process.wait()}) without saying {words!r}")


def is_ready(port: int) -> bool:
    """Tell whether who listens at this port says that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:  # URLError is one, and HTTP's 503 is a URLError
        return False
