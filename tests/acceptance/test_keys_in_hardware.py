"""A deployment whose CA key is in a hardware module: it joins, revokes, and outlives the module's absence."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import softhsm
from tests.support.folders import server_folder
from tests.support.sites import Site, configured, joined
from tests.support.softhsm import SoftHsm, needs_softhsm
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]


@dataclass
class HardwareSite(Site):
    """A deployment beside a module."""

    hsm: SoftHsm

    def environment(self, **more: str) -> dict[str, str]:
        """Return what processes are started with."""
        return super().environment(SOFTHSM2_CONF=str(self.hsm.conf), **more)


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[HardwareSite]:
    """Give a deployment whose first CA is a file, and whose second is in the module."""
    needs_softhsm()
    with server_folder("hsm") as folder:
        hsm = softhsm.made(folder / "hsm")
        ports = configured(folder, dsn, kafka_broker.bootstrap_servers, "")
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("[signer]\n", f"[signer]\n{hsm.settings}"))
        site = HardwareSite(folder, ports, hsm)
        with site.serving("signer", "worker", "gateway", pools=["default"]):
            yield site


def certificate(site: Site, name: str) -> x509.Certificate:
    pem = (site.folder / name / "current" / "cert.pem").read_bytes()
    return x509.load_pem_x509_certificate(pem)


def join(site: Site, name: str) -> str:
    """Return the id of the node that a new machine has become."""
    token = site.asked("tokens", "create", "acme", "default")["token"]
    file = site.folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(token)
    with site.joining(name, "--token-file", str(file)) as machine:
        found: str = joined(machine)["node"]["nodeId"]
        return found


def test_a_join_and_the_crl_are_signed_in_the_module(site: HardwareSite) -> None:
    """The CA changes from a file to the module while the deployment runs, and nothing is restarted."""
    old_node = join(site, "before")
    old = certificate(site, "before")
    kid = site.asked("keys", "prepare", "ca", "--in-hsm", "node-ca-2", "--why", "to the module")[
        "kid"
    ]
    # Agents would not know it.
    with site.started("keys", "activate", "ca") as refused:
        _, said = refused.communicate(timeout=100)
    assert refused.returncode == 4, said
    assert "trust publish" in said
    site.run("trust", "publish")
    site.run("keys", "activate", "ca")
    site.run("trust", "publish")

    deadline = time.monotonic() + 60
    name, node, issuer = "", "", old.issuer
    while issuer == old.issuer:  # the signer looks once a second
        assert time.monotonic() < deadline
        name = f"after-{time.monotonic_ns()}"
        node = join(site, name)
        issuer = certificate(site, name).issuer

    (ca,) = (row for row in site.asked("keys", "list")["items"] if row["kid"] == kid)
    assert (ca["state"], ca["where"]) == ("active", "hsm: node-ca-2")
    bundle = site.folder / "bundle.pem"
    site.run("trust", "export", "--to", str(bundle))
    authorities = x509.load_pem_x509_certificates(bundle.read_bytes())
    (module_ca,) = (one for one in authorities if one.subject == issuer)
    certificate(site, name).verify_directly_issued_by(module_ca)
    assert len(authorities) == 2

    site.run("nodes", "evict", node, old_node, "--yes", "--why", "a test")
    site.run("crl", "publish")
    crls = {
        name: x509.load_der_x509_crl(fetched(site, f"/v1/crl{name}")) for name in ("", f"/{kid}")
    }
    public = module_ca.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    for crl in crls.values():
        assert crl.is_signature_valid(public)
        assert len(crl) == 2
    # The CA before signs a list of its own, for whoever checks certificates of it.
    (before,) = (
        r["kid"]
        for r in site.asked("keys", "list")["items"]
        if (r["kind"], r["state"]) == ("ca", "retired")
    )
    assert x509.load_der_x509_crl(fetched(site, f"/v1/crl/{before}")).issuer == old.issuer


def test_a_ca_whose_certificates_are_valid_stays(site: HardwareSite) -> None:
    """Else nodes that have done nothing wrong are nobody's any more."""
    rows = site.asked("keys", "list")["items"]
    (old,) = (row["kid"] for row in rows if (row["kind"], row["state"]) == ("ca", "retired"))

    with site.started("keys", "retire", "ca", old) as refused:
        _, said = refused.communicate(timeout=100)

    assert refused.returncode == 4, said
    assert site.asked("keys", "list")["items"] == rows


def test_a_module_that_goes_away_is_waited_for(site: HardwareSite) -> None:
    """The signer says that it is not ready, and goes on by itself when the module is back."""
    site.hsm.unplug()
    try:
        deadline = time.monotonic() + 60
        while is_ready(site):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        site.hsm.plug_in()
    site.await_ready("signer")
    join(site, "came-back")


def fetched(site: Site, path: str) -> bytes:
    """Return what the gateway serves there, as soon as it has read it."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urlopen(f"{site.gateway}{path}", timeout=10) as response:  # noqa: S310 - our own gateway
                content: bytes = response.read()
                return content
        except HTTPError as error:
            if error.code != 404 or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def is_ready(site: Site) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{site.ports['signer']}/readyz", timeout=5):
            return True
    except HTTPError:
        return False


def test_the_journal_says_who_changed_the_ca(site: HardwareSite) -> None:
    """A key that changed and nobody knows why is what an attack looks like."""
    assert site.asked("rebuild", "--check")["items"] == []
