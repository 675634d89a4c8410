"""A machine waits for an operator, with every process a real one and everybody at a command line."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import server_folder
from watchword.handlers.attestors.image.evidence import parse_image
from watchword.streams.dev.free_ports import free_ports
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(300)]

_CONFIG = """\
[deployment]
trust_domain = "accept.example"
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
[attestors]
enabled = ["image"]
[attestors.image]
kinds = ["logs.*"]
"""

_READY_S = 90.0


@dataclass(frozen=True)
class Site:
    """A deployment without relay and keeper, which nobody here waits for."""

    folder: Path
    gateway: str
    environment: dict[str, str]

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "watchword.streams.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def run(self, *arguments: str) -> str:
        with self.started(*arguments) as process:
            stdout, stderr = process.communicate(timeout=100)
        assert process.returncode == 0, stderr
        return stdout

    def asked(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(*arguments, "--json"))


@pytest.fixture
def site(database: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment that is ready."""
    with server_folder("accept") as folder, ExitStack() as stack:
        folder.chmod(0o700)
        ports = free_ports(4)
        names = ("signer", "worker", "gateway", "gateway_health")
        numbers = dict(zip(names, ports, strict=True))
        (folder / "url").touch(mode=0o600)
        (folder / "url").write_text(database)
        (folder / "config.toml").write_text(
            _CONFIG.format(folder=folder, kafka=kafka_broker.bootstrap_servers, **numbers)
        )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "WATCHWORD_CONFIG": str(folder / "config.toml"),
        }
        made = Site(folder, f"http://127.0.0.1:{numbers['gateway']}", environment)
        made.run("keys", "init")
        made.run("topics", "apply")
        made.run("trust", "publish")
        for command in ("signer", "worker", "gateway"):
            stack.enter_context(_process(made, command))
        for port in (numbers["signer"], numbers["worker"], numbers["gateway_health"]):
            _until_ready(port)
        yield made


@contextmanager
def _process(site: Site, command: str) -> Generator[None]:
    log = site.folder / f"{command}.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "watchword.streams.cli", command],
            stdout=file,
            stderr=file,
            env=site.environment,
        ) as process,
    ):
        try:
            yield
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()


def _until_ready(port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while not _is_ready(port):
        assert time.monotonic() < deadline, f"whoever should listen at {port} is not ready"
        time.sleep(0.1)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:  # URLError is one, and HTTP's 503 is a URLError
        return False


def _until_said(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line.strip()
    pytest.fail(f"it ended ({process.wait()}) without saying {words!r}")


def test_a_machine_waits_until_one_of_two_operators_has_approved_it(site: Site) -> None:
    """An image's secret is on every copy of the image: a person looks at each machine, and only one decides."""
    site.run("tenants", "create", "acme")
    site.run("pools", "create", "acme", "gpu")
    secret = site.asked("images", "create", "acme", "gpu", "--kind", "logs.*")["secret"]
    (site.folder / "image").touch(mode=0o600)
    (site.folder / "image").write_text(secret)
    state = str(site.folder / "machine")
    pin = site.run("keys", "pin").strip()
    site.run("agent", "bootstrap", "--state", state, "--gateway", site.gateway, "--pin", pin)

    with site.started(
        "agent", "join", "--state", state, "--gateway", site.gateway, "--json",
        "--give-up-after", "2m", "--attestor", "image", "--image-file", str(site.folder / "image"),
    ) as machine:  # fmt: skip
        said = _until_said(machine, "waiting for an operator to approve")
        (waiting,) = site.asked("requests", "list")["items"]
        assert said.endswith(waiting["csrSha256"])
        assert waiting["grants"]["allowedKinds"] == ["logs.*"]
        assert waiting["facts"]["image"] == parse_image(secret).id

        both = [
            site.started("requests", "approve", waiting["id"], "--version", "1", "--yes", "--who", who)
            for who in ("ada", "bob")
        ]  # fmt: skip
        codes = {who: one.wait(100) for who, one in zip(("ada", "bob"), both, strict=True)}
        for one in both:
            one.communicate()
        stdout, stderr = machine.communicate(timeout=100)

    assert sorted(codes.values()) == [0, 4]
    assert machine.returncode == 0, stderr
    joined = json.loads(stdout)
    (node,) = site.asked("nodes", "list")["items"]
    assert (node["attestor"], node["tenant"], node["pool"]) == ("image", "acme", "gpu")
    assert node["id"] in json.dumps(joined)
    (used,) = site.asked("requests", "list", "--state", "all")["items"]
    assert (used["state"], codes[used["decidedBy"]]) == ("consumed", 0)
    assert site.asked("rebuild", "--check")["items"] == []
    logs = "".join(log.read_text() for log in site.folder.glob("*.log"))
    assert secret.rpartition(".")[2] not in logs
