"""Each way to join beyond a token, with every process a real one and everybody at a command line."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import OperatorCa
from tests.support.cloud_desks import ACCOUNTS, Clouds
from tests.support.folders import server_folder
from tests.support.metadata import Asked, Aws, Said, serving
from tests.support.sites import READY_S, Site, configured, joined, until_said
from watchword.handlers.attestors.cloud_iid.prover import CloudIidProver, Provider
from watchword.handlers.attestors.image.evidence import parse_image
from watchword.streams.agent.errors import JoinRefused
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.agent.metadata import LinkLocalMetadata
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(300)]

_ATTESTORS = """\
[attestors]
enabled = ["image", "discovery", "x509pop", "cloud-iid"]
[attestors.image]
kinds = ["logs.*"]
[attestors.discovery]
kinds = ["disk.wipe"]
[attestors.cloud-iid]
anchors_folder = "{anchors}"
reload_s = 0.2
kinds = ["logs.*"]
[[attestors.x509pop.rules]]
authorities_file = "{folder}/operators-ca.pem"
match = {{ commonName = "*.web.fleet.example" }}
tenant = "acme"
pool = "gpu"
"""

Answering = Callable[[Asked], Said]


@pytest.fixture(scope="module")
def operators_ca() -> OperatorCa:
    """Give the CA of certificates that machines have from elsewhere."""
    return OperatorCa()


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Clouds:
    """Give three clouds, whose anchors the worker has."""
    return Clouds.at(tmp_path_factory.mktemp("anchors"))


@pytest.fixture(scope="module")
def site(
    dsn: str, kafka_broker: EmbeddedKafka, operators_ca: OperatorCa, clouds: Clouds
) -> Generator[Site]:
    """Give a deployment that is ready, with a tenant in it."""
    with server_folder("accept") as folder:
        kafka = kafka_broker.bootstrap_servers
        made = Site(folder, configured(folder, dsn, kafka, _ATTESTORS, anchors=clouds.folder.path))
        (folder / "operators-ca.pem").write_bytes(
            operators_ca.certificate.public_bytes(Encoding.PEM)
        )
        with made.serving("signer", "worker", "gateway", pools=["gpu"]):
            made.run("sites", "create", "acme", "berlin")
            yield made


def _node(site: Site, shown: dict[str, Any]) -> dict[str, Any]:
    """Return a node as the operator sees it, by what its agent shows."""
    (node,) = (n for n in site.asked("nodes", "list")["items"] if n["id"] in json.dumps(shown))
    found: dict[str, Any] = node
    return found


def test_a_machine_waits_until_one_of_two_operators_has_approved_it(site: Site) -> None:
    """An image's secret is on every copy of the image: a person looks at each machine, and only one decides."""
    secret = site.asked("images", "create", "acme", "gpu", "--kind", "logs.*")["secret"]
    file = site.folder / "image"
    file.touch(mode=0o600)
    file.write_text(secret)

    with site.joining("by-image", "--attestor", "image", "--image-file", str(file)) as machine:
        said = until_said(machine, "waiting for an operator to approve")
        (waiting,) = site.asked("requests", "list")["items"]
        assert said.endswith(waiting["csrSha256"])
        assert waiting["grants"]["allowedKinds"] == ["logs.*"]
        assert waiting["facts"]["image"] == parse_image(secret).id

        both = {
            who: site.started(
                "requests", "approve", waiting["id"], "--version", "1", "--yes", "--who", who
            )
            for who in ("ada", "bob")
        }
        for one in both.values():
            one.communicate(timeout=100)
        codes = {who: one.returncode for who, one in both.items()}
        node = _node(site, joined(machine))

    assert sorted(codes.values()) == [0, 4]
    assert (node["attestor"], node["tenant"], node["pool"]) == ("image", "acme", "gpu")
    (used,) = site.asked("requests", "list", "--state", "consumed")["items"]
    assert codes[used["decidedBy"]] == 0
    assert site.asked("rebuild", "--check")["items"] == []
    logs = "".join(log.read_text() for log in site.folder.glob("*.log"))
    assert secret.rpartition(".")[2] not in logs


def test_a_ramdisk_joins_by_the_word_of_its_sites_agent(site: Site) -> None:
    """The agent names its CSR, the site vouches for just that one, and an operator sees what was vouched for."""
    key, assertion = site.folder / "site.pem", site.folder / "assertion"
    made = site.asked("site", "make-key", "--key-file", str(key))
    site.run(
        "site", "keys", "add", "acme", "berlin", "gpu", "--public-key-file", made["publicKeyFile"],
        "--kind", "disk.wipe",
    )  # fmt: skip

    with site.joining(
        "by-site", "--attestor", "discovery", "--assertion-file", str(assertion)
    ) as machine:
        said = until_said(machine, "nothing to show for CSR SHA-256")
        csr = said.split("CSR SHA-256 ")[1].split()[0]
        token = site.run(
            "site", "assert", "--key-file", str(key), "--site", "berlin", "--csr-sha256", csr,
            "--mac", "3c:fd:fe:12:34:56",
        )  # fmt: skip
        assertion.write_text(token)
        until_said(machine, f"waiting for an operator to approve CSR SHA-256 {csr}")
        (waiting,) = site.asked("requests", "list", "--attestor", "discovery")["items"]
        assert waiting["csrSha256"] == csr
        site.run("requests", "approve", waiting["id"], "--yes")
        node = _node(site, joined(machine))

    assert (node["attestor"], node["role"], node["site"]) == ("discovery", "ramdisk", "berlin")


def test_a_machine_with_a_certificate_answers_a_challenge(
    site: Site, operators_ca: OperatorCa
) -> None:
    """Two rounds over HTTP, Kafka and a worker; the certificate alone, which everybody may have, is not enough."""
    held = operators_ca.give("m7.web.fleet.example")
    chain, key = site.folder / "chain.pem", site.folder / "key.pem"
    chain.write_bytes(held.pem)
    key.touch(mode=0o600)
    key.write_bytes(held.key_pem)

    with site.joining(
        "by-certificate", "--attestor", "x509pop", "--certificate-file", str(chain),
        "--key-file", str(key),
    ) as machine:  # fmt: skip
        node = _node(site, joined(machine))

    assert (node["attestor"], node["pool"]) == ("x509pop", "gpu")
    assert site.asked("rebuild", "--check")["items"] == []


async def _joined_from(site: Site, name: str, provider: Provider, metadata: Answering) -> str:
    """Return the node of a machine whose metadata service this is; its agent runs here, all else elsewhere."""
    state = site.bootstrapped(name)
    transport = HttpTransport(site.gateway)
    async with serving(metadata) as service:
        prover = CloudIidProver(provider, LinkLocalMetadata(service.address))
        try:
            result = await join(state, transport, prover, JoinOptions(give_up_after_s=100))
        finally:
            await transport.close()
    return result.identity.node.node_id


async def test_instances_of_three_clouds_join_and_a_new_region_needs_no_restart(
    site: Site, clouds: Clouds, tmp_path: Path
) -> None:
    """Metadata service, agent, gateway, Kafka, worker: and the operator's part, which is one account and one import."""
    providers: tuple[Provider, ...] = ("aws", "gcp", "azure")
    for provider in providers:
        site.run("cloud", "accounts", "add", provider, ACCOUNTS[provider], "acme", "gpu",
                 "--kind", "logs.*")  # fmt: skip

    for provider in providers:
        node = await _joined_from(site, f"by-{provider}", provider, clouds.service(provider))
        found = _node(site, {"id": node})
        assert (found["attestor"], found["pool"]) == ("cloud-iid", "gpu")

    new = Aws(clouds.aws, region="ap-southeast-7", instance="i-00000000000000007")
    with pytest.raises(JoinRefused):
        await _joined_from(site, "too-early", "aws", new)
    (tmp_path / "rsa2048").mkdir()
    (tmp_path / "rsa2048" / "ap-southeast-7.pem").write_bytes(clouds.aws.pem)
    loads = _metric(site, 'watchword_cloud_anchor_reloads_total{outcome="loaded"}')
    site.run("anchors", "import", "aws", str(tmp_path))
    deadline = time.monotonic() + READY_S
    while _metric(site, 'watchword_cloud_anchor_reloads_total{outcome="loaded"}') == loads:
        assert time.monotonic() < deadline, "the worker has not loaded the anchors"
        await asyncio.sleep(0.1)

    await _joined_from(site, "in-time", "aws", new)
    used = 'source="0.pem"'
    assert _metric(site, "watchword_cloud_anchor_last_used_timestamp_seconds", used) > 0
    assert site.asked("rebuild", "--check")["items"] == []


def _metric(site: Site, name: str, label: str = "") -> float:
    """Return a metric of the worker's; 0 if it has none of that name."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{site.ports['worker']}/metrics", timeout=5
    ) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith(name) and label in x)
