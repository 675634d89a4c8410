"""Machines with a TPM, with every process a real one, the TPM a software one, and everybody at a command line."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from tests.support.folders import server_folder
from tests.support.postgres import Databases
from tests.support.swtpm import SoftwareTpm, made, needs_swtpm
from watchword.streams.dev.free_ports import free_ports
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]

_CONFIG = """\
[deployment]
trust_domain = "tpm.example"
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
health_port = {worker}
[gateway]
port = {gateway}
health_port = {gateway_health}
[topics]
replication_factor = 1
min_insync_replicas = 1
[attestors]
enabled = ["tpm"]
[attestors.tpm]
kinds = ["logs.*"]
anchors_folder = "{folder}/vendors"
[attestors.tpm.waiting_room]
tenant = "acme"
pool = "lobby"
kinds = ["logs.*"]
"""

_READY_S = 90.0


@dataclass
class Site:
    """A deployment without relay and keeper, and the processes that were started for it."""

    folder: Path
    numbers: dict[str, int]
    tpm: SoftwareTpm
    workers: dict[str, "subprocess.Popen[bytes]"] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.numbers['gateway']}"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "WATCHWORD_CONFIG": str(self.folder / "config.toml"),
            **more,
        }

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "watchword.streams.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )

    def run(self, *arguments: str) -> str:
        with self.started(*arguments) as process:
            stdout, stderr = process.communicate(timeout=100)
        assert process.returncode == 0, stderr
        return stdout

    def asked(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(*arguments, "--json"))

    def joining(
        self, name: str, *arguments: str, tpm: SoftwareTpm | None = None
    ) -> "subprocess.Popen[str]":
        """Start the agent of a machine with a TPM; another name is another disk."""
        state = str(self.folder / name)
        pin = self.run("keys", "pin").strip()
        self.run("agent", "bootstrap", "--state", state, "--gateway", self.gateway, "--pin", pin)
        return self.started(
            "agent", "join", "--state", state, "--gateway", self.gateway, "--json",
            "--give-up-after", "2m", "--attestor", "tpm", "--tcti", (tpm or self.tpm).tcti, *arguments,
        )  # fmt: skip

    def joined(self, name: str, *arguments: str, tpm: SoftwareTpm | None = None) -> str:
        """Return the id of the node that a machine has become."""
        with self.joining(name, *arguments, tpm=tpm) as machine:
            stdout, stderr = machine.communicate(timeout=150)
        assert machine.returncode == 0, stderr
        return _node_id(stdout)

    def certificate(self, name: str) -> x509.Certificate:
        pem = (self.folder / name / "current" / "cert.pem").read_bytes()
        return x509.load_pem_x509_certificate(pem)

    def start_worker(self, name: str) -> None:
        """Start a worker of this name; there is one at a time."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "watchword.streams.cli", "worker"],
                stdout=file,
                stderr=file,
                env=self.environment(WATCHWORD_WORKER__NAME=name),
            )
        _until_ready(self.numbers["worker"], log)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(databases: Databases) -> AsyncGenerator[str]:
    """Give one database to all tests here, as there is one deployment."""
    needs_swtpm()
    async with databases.migrated() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment that is ready, and a TPM that is on."""
    with server_folder("tpm") as folder, ExitStack() as stack:
        folder.chmod(0o700)
        names = ("signer", "worker", "gateway", "gateway_health")
        numbers = dict(zip(names, free_ports(4), strict=True))
        (folder / "chip").mkdir()
        tpm = made(folder / "chip")
        (folder / "vendors").mkdir()
        for path in (tpm.root, tpm.issuer):
            (folder / "vendors" / path.name).write_bytes(path.read_bytes())
        (folder / "url").touch(mode=0o600)
        (folder / "url").write_text(dsn)
        (folder / "config.toml").write_text(
            _CONFIG.format(folder=folder, kafka=kafka_broker.bootstrap_servers, **numbers)
        )
        site = Site(folder, numbers, tpm)
        stack.enter_context(tpm.running())
        site.run("keys", "init")
        site.run("topics", "apply")
        site.run("trust", "publish")
        for command in ("signer", "gateway"):
            stack.enter_context(_process(site, command))
        _until_ready(numbers["signer"], folder / "signer.log")
        stack.callback(_end, site)
        site.start_worker("first")
        _until_ready(numbers["gateway_health"], folder / "gateway.log")
        site.run("tenants", "create", "acme")
        for pool in ("gpu", "lobby"):
            site.run("pools", "create", "acme", pool)
        _set_policy(site)
        yield site


def _set_policy(site: Site) -> None:
    """Ask of both pools that the TPM has the values that it has now."""
    now = site.asked("agent", "tpm", "--state", str(site.folder / "look"), "--attestor", "tpm",
                     "--tcti", site.tpm.tcti)["pcrs"]["sha256"]  # fmt: skip
    policy = {
        "pcrs": [0, 2, 4, 7],
        "banks": ["sha256"],
        "log": "optional",
        "values": {"sha256": {str(n): [now[str(n)]] for n in (0, 2, 4, 7)}},
    }
    file = site.folder / "policy.json"
    file.write_text(json.dumps(policy))
    for pool in ("gpu", "lobby"):
        site.run("tpm", "policy", "set", "acme", pool, "--from-file", str(file))


def _ek(site: Site, kind: str, tpm: SoftwareTpm | None = None) -> str:
    shown = site.asked("agent", "tpm", "--state", str(site.folder / "look"), "--attestor", "tpm",
                       "--tcti", (tpm or site.tpm).tcti, "--ek", kind)  # fmt: skip
    found: str = shown["ekSha256"]
    return found


@contextmanager
def _process(site: Site, command: str) -> Generator[None]:
    log = site.folder / f"{command}.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "watchword.streams.cli", command],
            stdout=file,
            stderr=file,
            env=site.environment(),
        ) as process,
    ):
        try:
            yield
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()


def _end(site: Site) -> None:
    for worker in site.workers.values():
        worker.kill()
        worker.wait()


def _until_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while not _is_ready(port):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:
        return False


def test_every_pair_of_keys_joins_and_a_new_disk_is_the_same_node(site: Site) -> None:
    """RSA or ECC endorsement key, RSA or ECC attestation key; what stays the same is the chip's key."""
    nodes: dict[str, set[str]] = {}
    for ek in ("rsa2048", "p384"):
        site.run("tpm", "enrol", "acme", "gpu", "--ek", _ek(site, ek), "--kind", "logs.*")
        for ak in ("p256", "rsa2048"):
            node = site.joined(f"{ek}-{ak}", "--ek", ek, "--ak", ak)
            nodes.setdefault(ek, set()).add(node)

    assert {len(found) for found in nodes.values()} == {1}
    assert nodes["rsa2048"] != nodes["p384"]
    assert site.asked("rebuild", "--check")["items"] == []


def test_key_in_the_tpm_is_certified_and_said_to_be_there(site: Site) -> None:
    """The certificate names the attestation key only where the TPM has vouched for the node's key."""
    node = site.joined("in-tpm", "--node-key-in-tpm")

    names = site.certificate("in-tpm").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    assert [uri for uri in uris if uri.startswith("urn:bc:tpm-ak:")]
    key = (site.folder / "in-tpm" / "current" / "key.pem").read_text()
    assert key.startswith("-----BEGIN TSS2 PRIVATE KEY-----")
    (found,) = (n for n in site.asked("nodes", "list")["items"] if n["id"] == node)
    assert found["attestor"] == "tpm"


def test_second_round_is_judged_by_another_worker_when_the_first_was_killed(site: Site) -> None:
    """What round one handed out is in the machine's hands: no worker has to remember it."""
    gate = site.folder / "event-log"
    os.mkfifo(gate)
    with site.joining("two-rounds", "--ek", "p384", "--event-log", str(gate)) as machine:
        # The agent reads its log when it has a challenge: it waits here until the log is written.
        with gate.open("wb"):
            site.workers["first"].kill()
            site.workers["first"].wait()
            site.start_worker("second")
        stdout, stderr = machine.communicate(timeout=150)

    assert machine.returncode == 0, stderr
    assert _node_id(stdout)


def test_chip_that_nobody_has_enrolled_waits_for_an_operator(site: Site) -> None:
    """A vendor's certificate says that it is a TPM, and a person that it is ours."""
    (site.folder / "stranger").mkdir()
    stranger = made(site.folder / "stranger", ca=site.tpm.folder / "ca")
    with stranger.running():
        with site.joining("waits", tpm=stranger) as machine:
            _until_said(machine, "waiting for an operator to approve")
            (waiting,) = site.asked("requests", "list")["items"]
            assert waiting["facts"]["ek"] == _ek(site, "auto", stranger)
            site.run("requests", "approve", waiting["id"], "--yes")
            stdout, stderr = machine.communicate(timeout=150)
        assert machine.returncode == 0, stderr
        # It is a bound node now, and needs nobody when its disk is new.
        assert site.joined("waits-no-more", tpm=stranger) == _node_id(stdout)
    (node,) = (n for n in site.asked("nodes", "list")["items"] if n["pool"] == "lobby")
    assert node["attestor"] == "tpm"


def _node_id(status: str) -> str:
    """Return the node's id out of what an agent shows of itself."""
    found: str = json.loads(status)["node"]["nodeId"]
    return found


def _until_said(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended ({process.wait()}) without saying {words!r}")
