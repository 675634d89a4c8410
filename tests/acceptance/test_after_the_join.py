"""What operators and machines do after a join, with every process a real one and everybody at a command line."""

import json
import urllib.request
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.support.folders import server_folder
from tests.support.sites import Site, configured, joined
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(400)]

_NO_MORE = ""
_NARROWER = """\
[attestors.join-token]
pools = ["db"]
unsafe_unrestricted_kinds = true
"""


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment that is ready, with a tenant in it."""
    with server_folder("after") as folder:
        kafka = kafka_broker.bootstrap_servers
        made = Site(folder, configured(folder, dsn, kafka, _NO_MORE))
        with made.serving("signer", "worker", "gateway", pools=["web"]):
            yield made


def token_file(site: Site, name: str, **more: str) -> Path:
    """Return a file with a new token."""
    options = [part for option, value in more.items() for part in (f"--{option}", value)]
    made = site.asked("tokens", "create", "acme", "web", *options)
    file = site.folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(made["token"])
    return file


def node_of(site: Site, name: str) -> dict[str, Any]:
    """Return what the agent of a new machine shows once it is a node."""
    file = token_file(site, name)
    with site.joining(name, "--token-file", str(file)) as machine:
        found: dict[str, Any] = joined(machine)["node"]
        return found


@pytest.mark.parametrize("way", ["gateway", "kafka"])
def test_a_machine_renews_when_it_is_told_to(site: Site, way: str) -> None:
    """Over HTTP and straight on Kafka: the same node, another key, and the old certificate renews nothing more."""
    before = node_of(site, f"renews-by-{way}")
    state = site.folder / f"renews-by-{way}"
    old = x509.load_pem_x509_certificate((state / "current" / "cert.pem").read_bytes())
    by = ("--gateway", site.gateway) if way == "gateway" else ("--kafka",)
    after = site.asked("agent", "renew", "--state", str(state), *by)
    new = x509.load_pem_x509_certificate((state / "current" / "cert.pem").read_bytes())

    assert after["node"]["nodeId"] == before["nodeId"]
    assert new.public_key() != old.public_key()
    node = site.asked("nodes", "show", before["nodeId"])
    assert node["state"] == "active"
    current = {c["serial"]: c["isCurrent"] for c in node["certificates"]}
    assert current[f"{new.serial_number:032x}"]
    assert not current[f"{old.serial_number:032x}"]
    assert (
        site.asked("rebuild", "--check")["items"]
        == [
            # Places and tokens are made by commands here, so nothing is made by hand.
        ]
    )


def test_an_evicted_machine_renews_no_more(site: Site) -> None:
    """It is told no, and the exit code says so."""
    node = node_of(site, "evicted")
    site.run("nodes", "evict", node["nodeId"], "--why", "a test", "--yes")
    with site.started(
        "agent", "renew", "--state", str(site.folder / "evicted"), "--gateway", site.gateway
    ) as process:
        _, stderr = process.communicate(timeout=100)

    assert process.returncode == 5, stderr
    assert "Renewal refused" in stderr


def test_what_is_revoked_is_on_the_list_that_gateways_serve(site: Site) -> None:
    """From an operator's act to whoever checks certificates: signed, published through Kafka, fetched over HTTP."""
    node = node_of(site, "revoked")
    serial = site.asked("nodes", "show", node["nodeId"])["certificates"][0]["serial"]
    site.run("nodes", "retire", node["nodeId"], "--why", "a test", "--yes")
    published = site.asked("crl", "publish", "--valid-for", "1h")
    assert site.asked("crl", "show", "--published")["number"] == published["number"]

    def served() -> x509.CertificateRevocationList:
        with urllib.request.urlopen(f"{site.gateway}/v1/crl", timeout=10) as answer:  # noqa: S310 - our own gateway
            assert "max-age" in answer.headers["Cache-Control"]
            return x509.load_der_x509_crl(answer.read())

    crl = _eventually(lambda: _with(served(), int(serial, 16)))
    authority = x509.load_pem_x509_certificates(
        (site.folder / "revoked" / "current" / "bundle.pem").read_bytes()
    )
    assert any(crl.is_signature_valid(one.public_key()) for one in authority)


def _with(
    crl: x509.CertificateRevocationList, serial: int
) -> x509.CertificateRevocationList | None:
    return crl if crl.get_revoked_certificate_by_serial_number(serial) is not None else None


def _eventually(look: Any) -> Any:  # noqa: ANN401 - what it finds
    import time  # noqa: PLC0415 - here alone
    import urllib.error  # noqa: PLC0415 - here alone

    deadline = time.monotonic() + 60
    while True:
        try:
            found = look()
        except urllib.error.HTTPError:
            found = None
        if found is not None:
            return found
        assert time.monotonic() < deadline, "it was not served"
        time.sleep(0.1)


def test_an_operator_is_told_step_by_step_why_a_machine_was_refused(site: Site) -> None:
    """By whatever names the request; a worker answers, because only workers can open what machines seal."""
    file = token_file(site, "explained")
    for name, code in (("first", 0), ("second", 5)):
        with site.joining(f"explained-{name}", "--token-file", str(file)) as machine:
            _, stderr = machine.communicate(timeout=150)
            assert machine.returncode == code, stderr
    refusal = site.asked("refusals", "list", "--reason", "used-up")["items"][0]
    place = f"{refusal['topic']}:{refusal['partition']}:{refusal['offset']}"

    found = site.asked("explain", refusal["requestId"], "--why", "a ticket")
    by_place, by_digest = (
        site.asked("explain", place),
        site.asked("explain", refusal["requestSha256"]),
    )
    assert found == by_place == by_digest
    assert found["agrees"] is True
    assert found["verdict"] == {"outcome": "refused", "reason": "join-token:used-up"}
    failed = [step for step in found["steps"] if step["status"] == "failed"]
    assert [step["number"] for step in failed] == ["4", "4.3"]
    assert failed[1]["facts"]["usesLeft"] == 0

    text = site.run("explain", refusal["requestId"])
    assert "4.3   NO" in text
    assert "to do" in text
    secret = file.read_text().rpartition(".")[2]
    assert secret not in text + json.dumps(found)
    with site.started("explain", sha256(b"nobody's").hexdigest()) as process:
        _, stderr = process.communicate(timeout=100)
    assert process.returncode == 3, stderr


def test_a_draft_policy_is_tried_on_what_has_happened(site: Site) -> None:
    """What it would have refused is listed before it is in force, and nobody is the worse for it."""
    node = node_of(site, "drafted")
    draft = site.folder / "draft.toml"
    draft.write_text(_NARROWER)
    nodes = site.asked("nodes", "list")["items"]

    assert site.asked("explain", "--since", "1h")["items"] == []
    changed = site.asked("explain", "--since", "1h", "--policy", str(draft))["items"]
    ours = [one for one in changed if one["draft"] == "refused join:not-allowed"]
    assert ours
    assert {(one["inForce"], one["check"]) for one in ours} == {("joined", "11")}
    one = site.asked("explain", ours[0]["requestSha256"], "--policy", str(draft))
    assert one["verdict"]["reason"] == "join:not-allowed"
    assert one["recorded"]["outcome"] == "joined"
    assert site.asked("nodes", "list")["items"] == nodes
    assert node["nodeId"] in {one["id"] for one in nodes}
