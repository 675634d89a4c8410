"""Machines with a TPM, with every process a real one, the TPM a software one, and everybody at a command line."""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography import x509

from tests.support.folders import server_folder
from tests.support.sites import Site, configured, joined, until_said
from tests.support.swtpm import SoftwareTpm, made, needs_swtpm
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]

_ATTESTORS = """\
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


@dataclass
class TpmSite(Site):
    """A deployment beside a TPM, and the workers that were started for it, one at a time."""

    tpm: SoftwareTpm
    workers: dict[str, "subprocess.Popen[bytes]"] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def with_tpm(
        self, name: str, *arguments: str, tpm: SoftwareTpm | None = None
    ) -> "subprocess.Popen[str]":
        """Start the agent of a machine with a TPM; another name is another disk."""
        return self.joining(name, "--attestor", "tpm", "--tcti", (tpm or self.tpm).tcti, *arguments)

    def joined(self, name: str, *arguments: str, tpm: SoftwareTpm | None = None) -> str:
        """Return the id of the node that a machine has become."""
        with self.with_tpm(name, *arguments, tpm=tpm) as machine:
            return _node_id(joined(machine))

    def certificate(self, name: str) -> x509.Certificate:
        pem = (self.folder / name / "current" / "cert.pem").read_bytes()
        return x509.load_pem_x509_certificate(pem)

    def start_worker(self, name: str) -> None:
        """Start a worker of this name; there is one at a time."""
        log = self.folder / f"{name}.log"
        self.workers[name] = self.spawned("worker", log, WATCHWORD_WORKER__NAME=name)
        self.await_ready("worker")


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[TpmSite]:
    """Give a deployment that is ready, and a TPM that is on."""
    needs_swtpm()
    with server_folder("tpm") as folder, ExitStack() as stack:
        (folder / "chip").mkdir()
        tpm = made(folder / "chip")
        (folder / "vendors").mkdir()
        for path in (tpm.root, tpm.issuer):
            (folder / "vendors" / path.name).write_bytes(path.read_bytes())
        kafka = kafka_broker.bootstrap_servers
        site = TpmSite(folder, configured(folder, dsn, kafka, _ATTESTORS), tpm)
        stack.enter_context(tpm.running())
        stack.enter_context(site.serving("signer", "gateway", pools=["gpu", "lobby"]))
        stack.callback(_end, site)
        site.start_worker("first")
        _set_policy(site)
        yield site


def _set_policy(site: TpmSite) -> None:
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


def _ek(site: TpmSite, kind: str, tpm: SoftwareTpm | None = None) -> str:
    shown = site.asked("agent", "tpm", "--state", str(site.folder / "look"), "--attestor", "tpm",
                       "--tcti", (tpm or site.tpm).tcti, "--ek", kind)  # fmt: skip
    found: str = shown["ekSha256"]
    return found


def _end(site: TpmSite) -> None:
    for worker in site.workers.values():
        worker.kill()
        worker.wait()


def test_every_pair_of_keys_joins_and_a_new_disk_is_the_same_node(site: TpmSite) -> None:
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


def test_key_in_the_tpm_is_certified_and_said_to_be_there(site: TpmSite) -> None:
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


def test_second_round_is_judged_by_another_worker_when_the_first_was_killed(site: TpmSite) -> None:
    """What round one handed out is in the machine's hands: no worker has to remember it."""
    gate = site.folder / "event-log"
    os.mkfifo(gate)
    with site.with_tpm("two-rounds", "--ek", "p384", "--event-log", str(gate)) as machine:
        # The agent reads its log when it has a challenge: it waits here until the log is written.
        with gate.open("wb"):
            site.workers["first"].kill()
            site.workers["first"].wait()
            site.start_worker("second")
        assert _node_id(joined(machine))


def test_chip_that_nobody_has_enrolled_waits_for_an_operator(site: TpmSite) -> None:
    """A vendor's certificate says that it is a TPM, and a person that it is ours."""
    (site.folder / "stranger").mkdir()
    stranger = made(site.folder / "stranger", ca=site.tpm.folder / "ca")
    with stranger.running():
        with site.with_tpm("waits", tpm=stranger) as machine:
            until_said(machine, "waiting for an operator to approve")
            (waiting,) = site.asked("requests", "list")["items"]
            assert waiting["facts"]["ek"] == _ek(site, "auto", stranger)
            site.run("requests", "approve", waiting["id"], "--yes")
            node_id = _node_id(joined(machine))
        # It is a bound node now, and needs nobody when its disk is new.
        assert site.joined("waits-no-more", tpm=stranger) == node_id
    (node,) = (n for n in site.asked("nodes", "list")["items"] if n["pool"] == "lobby")
    assert node["attestor"] == "tpm"


def _node_id(shown: dict[str, Any]) -> str:
    """Return the node's id out of what an agent shows of itself."""
    found: str = shown["node"]["nodeId"]
    return found
