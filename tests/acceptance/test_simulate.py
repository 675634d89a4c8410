"""A simulated fleet against a real deployment: by the gateway and straight, with an attestor of its own."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.folders import server_folder
from tests.support.sites import Site, configured
from tests.support.swtpm import needs_swtpm
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.simulator.attestor import ID, VARIABLE
from watchword.streams.simulator.make_key import make_key

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(400)]

_ATTESTORS = f"""\
[attestors]
enabled = ["discovery", "tpm", "{ID}"]
[attestors.tpm]
tenants = ["sim"]
[attestors.discovery]
tenants = ["sim"]
[attestors.{ID}]
tenants = ["sim"]
pools = ["fleet"]
kinds = ["diag.ping"]
"""

_NODES = 60


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment whose workers know the simulation's key, as an operator would have them."""
    with server_folder("sim") as folder:
        site = Site(folder, configured(folder, dsn, kafka_broker.bootstrap_servers, _ATTESTORS))
        config = folder / "config.toml"
        config.write_text(
            config.read_text().replace("[gateway]\n", "[gateway]\nrequests_per_address = 100000\n")
        )
        make_key(folder / "signing.pem", folder / "public.pem")
        variables = {VARIABLE: str(folder / "public.pem")}
        with site.serving("signer", "worker", "gateway", **variables):
            yield site


def simulated(site: Site, *arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Run a simulation; return its table, and what else it said."""
    with site.started(
        "simulate", "--pin", site.run("keys", "pin").strip(), "--output", "jsonl", *arguments
    ) as process:
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == code, stderr
    return [json.loads(line) for line in stdout.splitlines()], stderr


@pytest.mark.parametrize("way", ["gateway", "kafka"])
def test_fleet_joins_renews_and_leaves_as_it_should(site: Site, way: str) -> None:
    """Each outcome is known beforehand: who joins, with which kinds, who is refused, who renews in vain."""
    by = ("--gateway", site.gateway) if way == "gateway" else ()
    rows, said = simulated(
        site, "--nodes", str(_NODES), "--rate", "30/s", "--seed", "7",
        "--mix", "token=50,discovery=20,restricted=30",
        "--faults", "duplicate=10,forged=10,moved=5,vanish=5",
        "--renew", "50", "--leave", "30",
        "--restricted-key", str(site.folder / "signing.pem"), *by,
    )  # fmt: skip
    assert sum(row["count"] for row in rows if row["step"] == "join") == _NODES
    assert {row["kind"] for row in rows} == {"token", "discovery", "restricted"}
    assert {row["step"] for row in rows} == {"join", "renew", "leave"}
    assert f"{_NODES} came, 0 wait" in said
    assert "0 mismatches" in said


def test_machines_with_software_tpms_join_and_unknown_ones_do_not(site: Site) -> None:
    """Two rounds, a quote, an enrolment each: what a fleet of TPMs asks of the service."""
    needs_swtpm()
    rows, said = simulated(
        site, "--nodes", "8", "--rate", "5/s", "--seed", "3", "--mix", "tpm=100",
        "--faults", "forged=30", "--renew", "30", "--leave", "0",
    )  # fmt: skip
    assert sum(row["count"] for row in rows if row["step"] == "join") == 8
    assert "0 mismatches" in said


def test_mismatch_is_found_and_told(site: Site) -> None:
    """Otherwise a green simulation says nothing: here workers know another key than the machines'."""
    make_key(site.folder / "another.pem", site.folder / "another-public.pem")
    rows, said = simulated(
        site, "--nodes", "3", "--rate", "30/s", "--mix", "restricted=100",
        "--restricted-key", str(site.folder / "another.pem"), "--gateway", site.gateway, code=1,
    )  # fmt: skip
    assert [row["outcomes"] for row in rows] == ["refused 3"]
    assert "refused, not joined" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--mix", "restricted=100"), "--restricted-key"),
        (("--mix", "token=100", "--rate", "fast"), "a rate is written"),
        (("--mix", "token=100", "--faults", "gremlins=5"), "none of duplicate"),
    ],
)
def test_what_cannot_be_simulated_is_said(
    site: Site, arguments: tuple[str, ...], says: str
) -> None:
    _, said = simulated(site, *arguments, code=2)
    assert says in said
