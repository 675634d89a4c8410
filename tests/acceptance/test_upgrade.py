"""From the last release to this one under load: migrated first, then process by process, and agents last.

`tests/migrations/last_release` names the commit. Its processes run from its own source, on the dependencies of this one.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.judge.topics import NODE_EVENTS, read_topic
from tests.support.folders import server_folder
from tests.support.last_release import is_here, unpacked
from tests.support.postgres import Databases
from tests.support.sites import Site, configured
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.dev.free_ports import free_ports
from watchword.streams.dev.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(500)]

_MACHINES = 60
_EVERY_S = 0.4
"""Between two machines: so that some come in each state of the upgrade."""

Running = dict[str, "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the `PYTHONPATH` with which the last release runs."""
    if not is_here():
        pytest.skip("the last release is not in this clone")
    return unpacked(tmp_path_factory.mktemp("last-release"))


@pytest_asyncio.fixture(loop_scope="session")
async def site(databases: Databases, kafka_broker: EmbeddedKafka) -> AsyncGenerator[Site]:
    """Give a place for a deployment, on an empty database."""
    async with databases.empty() as dsn:
        with server_folder("upgrade") as folder:
            yield Site(folder, configured(folder, dsn, kafka_broker.bootstrap_servers, ""))


@contextmanager
def _ending(running: Running) -> Iterator[None]:
    """End whatever still runs."""
    try:
        yield
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _start(site: Site, running: Running, name: str, **environment: str) -> None:
    """Start a process as `worker-old`, `worker-new` …, at ports of its own where there may be two."""
    command = name.partition("-")[0]
    if command in ("worker", "relay"):
        (port,) = free_ports(1)
        site.ports = {**site.ports, name: port}
        environment |= {
            f"WATCHWORD_{command.upper()}__HEALTH_PORT": str(port),
            "WATCHWORD_WORKER__NAME": name,
        }
    listener = {"gateway": "gateway_health"}.get(command, name if command != "signer" else "signer")
    running[name] = site.spawned(command, site.folder / f"{name}.log", **environment)
    site.await_ready(listener)


def _stop(running: Running, *names: str) -> None:
    """End processes as whoever deploys does, one after the other; each has to drain in good order."""
    for name in names:
        process = running.pop(name)
        process.terminate()
        assert process.wait(60) == 0, name


async def _machine(site: Site, number: int, pin: str, token: str) -> str:
    """Boot a machine when its time has come; return its node."""
    await asyncio.sleep(number * _EVERY_S)
    state = site.folder / f"machine-{number}"
    transport = HttpTransport(site.gateway)
    try:
        await _until_bootstrapped(state, transport, pin)
        prover = JoinTokenProver.of_text(token)
        result = await join(state, transport, prover, JoinOptions(give_up_after_s=200))
    finally:
        await transport.close()
    return result.identity.node.node_id


async def _until_bootstrapped(state: Path, transport: HttpTransport, pin: str) -> None:
    """Bootstrap as a machine's service does that is started again until it succeeds."""
    from watchword.streams.agent.errors import TransportUnavailable  # noqa: PLC0415 - here alone

    while True:
        try:
            await bootstrap(state, transport, pin=pin)
        except TransportUnavailable:
            await asyncio.sleep(0.5)
        else:
            return


def _old(site: Site, path: str, *arguments: str) -> str:
    """Return what a command of the last release prints."""
    return subprocess.check_output(
        [sys.executable, "-m", "watchword.streams.cli", *arguments],
        env=site.environment(PYTHONPATH=path),
        text=True,
        timeout=120,
    )


async def test_a_release_takes_over_from_the_last_one_under_load(
    site: Site, last_release: str, kafka_broker: EmbeddedKafka
) -> None:
    """An upgrade is not a reason to refuse, lose or double a machine, nor to leave an event unread."""
    before: dict[str, str] = {"PYTHONPATH": last_release}
    running: Running = {}
    for order in (("db", "migrate"), ("keys", "init"), ("topics", "apply"), ("trust", "publish")):
        _old(site, last_release, *order)
    _old(site, last_release, "tenants", "create", "acme")
    _old(site, last_release, "pools", "create", "acme", "web")
    made = _old(site, last_release, "tokens", "create", "acme", "web", "--uses", "1000", "--json")
    token = str(json.loads(made)["token"])
    pin = _old(site, last_release, "keys", "pin").strip()
    with _ending(running):
        for name in ("signer-old", "worker-old", "relay-old", "gateway-old"):
            await asyncio.to_thread(_start, site, running, name, **before)
        machines = [
            asyncio.create_task(_machine(site, number, pin, token)) for number in range(_MACHINES)
        ]
        await asyncio.wait(machines[:5])
        await asyncio.to_thread(site.run, "db", "migrate")
        # Whoever crashes now is started again as what it was: on a schema that is newer than it knows.
        for name in list(running):
            await asyncio.to_thread(_stop, running, name)
            await asyncio.to_thread(_start, site, running, name, **before)
        for name in ("worker-new", "relay-new"):
            await asyncio.to_thread(_start, site, running, name)
        await asyncio.wait(machines[:25])
        await asyncio.to_thread(_stop, running, "worker-old", "relay-old", "gateway-old")
        await asyncio.to_thread(_start, site, running, "gateway-new")
        await asyncio.to_thread(_stop, running, "signer-old")
        await asyncio.to_thread(_start, site, running, "signer-new")
        nodes = await asyncio.gather(*machines)

        one_back = site.folder / "one-back"
        _old(site, last_release, "agent", "bootstrap", "--state", str(one_back),
             "--gateway", site.gateway, "--pin", pin)  # fmt: skip
        (site.folder / "token").touch(mode=0o600)
        (site.folder / "token").write_text(token)
        _old(site, last_release, "agent", "join", "--state", str(one_back), "--gateway",
             site.gateway, "--token-file", str(site.folder / "token"))  # fmt: skip
        shown = json.loads(
            _old(site, last_release, "agent", "status", "--state", str(one_back), "--json")
        )
        nodes.append(shown["node"]["nodeId"])
        renewed = json.loads(_old(site, last_release, "agent", "renew", "--state", str(one_back),
                                  "--gateway", site.gateway, "--json"))  # fmt: skip
        assert renewed["node"]["nodeId"] == nodes[-1]
        assert renewed["node"]["serial"] != shown["node"]["serial"]

        assert len(set(nodes)) == len(nodes) == _MACHINES + 1
        assert site.asked("refusals", "list")["items"] == []
        assert site.asked("rebuild", "--check")["items"] == []
        told = await _told(kafka_broker.bootstrap_servers, nodes)
        await asyncio.to_thread(_stop, running, *reversed(list(running)))

    assert told == Counter({(node, "node.joined"): 1 for node in nodes}) + Counter(
        {(nodes[-1], "node.renewed"): 1}
    )


async def _told(bootstrap_servers: str, nodes: Sequence[str]) -> Counter[tuple[str, str]]:
    """Return what `node.events` says of these nodes, once it says something of each, and each event once."""
    async with asyncio.timeout(60):
        while True:
            found = {
                body["id"]: (body["nodeId"], body["type"])
                for record in await read_topic(bootstrap_servers, NODE_EVENTS)
                if (body := json.loads(record.value or b"{}")).get("nodeId") in nodes
            }
            told = Counter(found.values())
            if len(told) > len(nodes):
                return told
            await asyncio.sleep(0.5)
