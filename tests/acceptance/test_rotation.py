"""Keys are replaced while a deployment runs: machines follow, and everybody is told who did it and why."""

import asyncio
import json
import time
from collections.abc import Callable, Generator
from typing import Any
from urllib.request import urlopen

import pytest

from tests.faults.judge.documents import body_of
from tests.faults.judge.topics import NODE_EVENTS, Record, read_topic
from tests.support.folders import server_folder
from tests.support.sites import READY_S, Site, configured, joined
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment that is ready, with a relay and a tenant in it."""
    with server_folder("rotated") as folder:
        kafka = kafka_broker.bootstrap_servers
        made = Site(folder, configured(folder, dsn, kafka, "[relay]\nhealth_port = 0\n"))
        with made.serving("signer", "worker", "gateway", "relay", pools=["web"]):
            yield made


class Offline(Site):
    """Where the keys are, and neither a database nor Kafka."""

    def environment(self, **more: str) -> dict[str, str]:
        """Return what commands are started with."""
        config = self.folder / "offline.toml"
        domain = self.folder.name.replace("_", "-")
        config.write_text(
            f'[deployment]\ntrust_domain = "{domain}.example"\n[keys]\ndirectory = "{self.folder}/keys"\n'
        )
        return super().environment(**more) | {"WATCHWORD_CONFIG": str(config)}


def eventually(look: Callable[[], bool], what: str) -> None:
    """Return when something is so."""
    deadline = time.monotonic() + READY_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def key_of(site: Site, kind: str, state: str) -> str:
    """Return the name of the one key of a kind in a state."""
    (kid,) = (
        row["kid"]
        for row in site.asked("keys", "list")["items"]
        if (row["kind"], row["state"]) == (kind, state)
    )
    found: str = kid
    return found


def served(site: Site) -> dict[str, Any]:
    """Return the key set that the gateway serves; its signature is for agents to check."""
    with urlopen(f"{site.gateway}/v1/keys", timeout=10) as answer:  # noqa: S310 - our own gateway
        return body_of(answer.read())


def joins(site: Site, name: str, pin: str) -> str:
    """Let a new machine that knows this pin join; return its node's id."""
    file = site.folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(site.asked("tokens", "create", "acme", "web")["token"])
    state = ("--state", str(site.folder / name))
    site.run("agent", "bootstrap", *state, "--gateway", site.gateway, "--pin", pin)
    machine = site.started(
        "agent", "join", *state, "--gateway", site.gateway, "--json", "--give-up-after", "2m",
        "--token-file", str(file),
    )  # fmt: skip
    with machine:
        found: str = joined(machine)["node"]["nodeId"]
        return found


def activated(site: Site, kind: str) -> bool:
    """Activate a key, and tell whether it could be: workers load it within a second or so."""
    with site.started("keys", "activate", kind, "--why", "yearly") as process:
        _, stderr = process.communicate(timeout=100)
    assert process.returncode in (0, 4), stderr
    return process.returncode == 0


async def rotations(kafka: EmbeddedKafka, kind: str) -> list[Record]:
    """Return what the topic has of keys of a kind, in order."""
    records = await read_topic(kafka.bootstrap_servers, NODE_EVENTS)
    return [record for record in records if record.key == f"keys/{kind}".encode()]


async def test_whoever_reads_events_is_told_of_a_new_signing_key(
    site: Site, kafka_broker: EmbeddedKafka
) -> None:
    """A key that changed and nobody knows why is what an attack looks like; and a pin of the old key leads to the new one."""
    pin = (await asyncio.to_thread(site.run, "keys", "pin")).strip()
    old = key_of(site, "signing", "active")

    def rotate() -> str:
        site.run("keys", "prepare", "signing", "--why", "yearly", "--who", "ada")
        site.run("trust", "publish")
        eventually(lambda: activated(site, "signing"), "no worker has loaded it")
        site.run("trust", "publish")
        new = key_of(site, "signing", "active")
        eventually(lambda: bool(served(site)["signing"]["kid"] == new), "it is not served")
        return new

    new = await asyncio.to_thread(rotate)
    await asyncio.to_thread(joins, site, "by-the-old-pin", pin)
    retire = ("keys", "retire", "signing", old, "--compromised", "--why", "ticket 4711")
    await asyncio.to_thread(site.run, *retire)

    deadline = time.monotonic() + READY_S
    while len(records := await rotations(kafka_broker, "signing")) < 3:
        assert time.monotonic() < deadline, records
        await asyncio.sleep(0.2)
    told = [json.loads(record.value or b"") for record in records]
    assert [(one["step"], one["kid"], one["retired"], one["compromised"]) for one in told] == [
        ("prepared", new, None, False),
        ("activated", new, old, False),
        ("retired", old, None, True),
    ]
    assert [one["why"] for one in told] == ["yearly", "yearly", "ticket 4711"]
    assert told[0]["who"] == "ada"
    assert {one["type"] for one in told} == {"trust.rotated"}
    headers = [dict(record.headers) for record in records]
    assert [header["ce_id"] for header in headers] == [one["id"].encode() for one in told]
    assert {header["ce_subject"] for header in headers} == {b"trust/keys/signing"}
    assert (await asyncio.to_thread(site.asked, "rebuild", "--check"))["items"] == []


def test_keys_are_replaced_where_there_is_nothing_but_the_keys(site: Site) -> None:
    """A machine for keys alone has no way to the database; what it made is in use as soon as it is published."""
    offline = Offline(site.folder, site.ports)
    offline.run("keys", "prepare", "decryption")
    prepared = key_of(offline, "decryption", "prepared")
    offline.run("keys", "activate", "decryption")
    site.run("trust", "publish")

    def is_served() -> bool:
        return prepared in {key["kid"] for key in served(site)["encryption"]}

    eventually(is_served, "it is not served")
    node = joins(site, "sealed-to-the-new-key", site.run("keys", "pin").strip())
    assert node in {row["id"] for row in site.asked("nodes", "list")["items"]}
