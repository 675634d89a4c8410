"""Commands to nodes, with every process a real one, and an agent that is killed where it hurts."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.folders import ROOT, server_folder
from tests.support.sites import READY_S, Site, configured
from watchword.schemas.topics import NODE_EVENTS
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.dev.topic_reader import reading

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(300)]

SAID = "the password is correct-horse"
_HANDLER = """\
#!/bin/sh
{{ echo "$WATCHWORD_COMMAND_KIND $WATCHWORD_COMMAND_ID"; cat; echo; }} >> {log}
"""


@pytest.fixture(scope="module")
def site(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Site]:
    """Give a deployment that is ready, with a relay and a tenant in it."""
    with server_folder("told") as folder:
        kafka = kafka_broker.bootstrap_servers
        made = Site(folder, configured(folder, dsn, kafka, "[relay]\nhealth_port = 0\n"))
        with made.serving("signer", "worker", "gateway", "relay", pools=["gpu"]):
            yield made


class Machine:
    """A machine whose agent runs, and is killed; with handlers that write down what they were told."""

    def __init__(self, site: Site, name: str) -> None:
        """Give it a token and a handler."""
        self.site = site
        self.state = site.bootstrapped(name)
        self.log = site.folder / f"{name}.done"
        self.said = site.folder / f"{name}.agent.log"
        self.handlers = site.folder / f"{name}.handlers"
        self.handlers.mkdir(mode=0o755)
        self.handler("disk.wipe", _HANDLER.format(log=self.log))
        self.token = site.folder / f"{name}.token"
        made = site.asked("tokens", "create", "acme", "gpu", "--kind", "disk.*")
        self.token.touch(mode=0o600)
        self.token.write_text(made["token"])

    def handler(self, kind: str, script: str) -> None:
        """Put a handler there."""
        path = self.handlers / kind
        path.write_text(script)
        path.chmod(0o755)

    @contextmanager
    def agent(self, **environment: str) -> Generator["subprocess.Popen[bytes]"]:
        """Run the agent; whatever becomes of it, it has ended afterwards."""
        with (
            self.said.open("ab") as log,
            subprocess.Popen(
                self.site.command(
                    "agent", "run", "--state", str(self.state), "--gateway", self.site.gateway,
                    "--token-file", str(self.token), "--handlers", str(self.handlers),
                    "--commands-every", "1s",
                ),
                stdout=log, stderr=log, env=self.site.environment(**environment),
                cwd=ROOT,
            ) as process,
        ):  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def killed_at(self, point: str) -> None:
        """Run the agent until it dies at a point, as by SIGKILL."""
        with self.agent(
            WATCHWORD_FAILPOINTS_MODULE="tests.support.kill_points", WATCHWORD_TEST_KILL_AT=point
        ) as process:
            assert process.wait(READY_S) == -signal.SIGKILL, self.said.read_text()

    def node(self) -> str:
        """Return its node's id."""
        found: str = json.loads((self.state / "current" / "node.json").read_bytes())["nodeId"]
        return found

    def done(self) -> str:
        """Return what its handlers wrote down."""
        return self.log.read_text() if self.log.exists() else ""


def await_state(site: Site, command: str, state: str) -> dict[str, Any]:
    """Return a command once it is in this state."""
    deadline = time.monotonic() + READY_S
    while True:
        (found,) = (c for c in site.asked("commands", "list")["items"] if c["id"] == command)
        if found["state"] == state:
            row: dict[str, Any] = found
            return row
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def send(site: Site, node: str, kind: str = "disk.wipe") -> str:
    """Send a command as an operator does; return its id."""
    file = site.folder / "payload"
    file.write_text(SAID)
    sent = site.asked("commands", "send", node, kind, "--file", str(file), "--why", "a test")
    found: str = sent["id"]
    return found


async def events_of(kafka: EmbeddedKafka, node: str) -> list[dict[str, Any]]:
    """Return what the topic says of a node."""
    servers = kafka.bootstrap_servers
    async with reading(servers, [NODE_EVENTS]) as reader:
        ends = await reader.ends()
    starts = {topic: dict.fromkeys(partitions, 0) for topic, partitions in ends.items()}
    async with reading(servers, [NODE_EVENTS], starts) as reader:
        records = await reader.read_to_the_end(within_s=30)
    found = [json.loads(record.value) for record in records if record.value is not None]
    return [event for event in found if event.get("nodeId") == node]


@pytest.mark.parametrize("point", ["command-accepted", "command-before-run", "command-started"])
async def test_command_is_run_once_although_the_agent_is_killed(
    site: Site, kafka_broker: EmbeddedKafka, point: str
) -> None:
    """From the operator's file to the handler's standard input, through SIGKILL, to the event that says that it was done."""
    machine = await asyncio.to_thread(Machine, site, point)
    with machine.agent():
        await asyncio.to_thread(_await_active, site, machine)
    command = await asyncio.to_thread(send, site, machine.node())
    await asyncio.to_thread(machine.killed_at, point)
    with machine.agent():
        row = await asyncio.to_thread(await_state, site, command, "done")
        again = await asyncio.to_thread(send, site, machine.node())
        await asyncio.to_thread(await_state, site, again, "done")

    assert (row["exitStatus"], row["reason"]) == (0, None)
    assert machine.done().count(f"disk.wipe {command}") == 1
    assert machine.done().count(SAID) == 2
    wanted = ["node.command.enqueued", "node.command.dispatched", "node.command.finished"] * 2
    deadline = time.monotonic() + READY_S
    while True:
        events = await events_of(kafka_broker, machine.node())
        if [e["type"] for e in events] == ["node.joined", "node.activated", *wanted]:
            break
        assert time.monotonic() < deadline, events
        await asyncio.sleep(0.2)
    mine = [event for event in events if event.get("commandId") == command]
    assert all(event["who"] and event["why"] for event in mine)
    _assert_nowhere(site, json.dumps(events))


def _await_active(site: Site, machine: Machine) -> None:
    """Return when the machine is a node that has asked for commands."""
    deadline = time.monotonic() + READY_S
    while True:
        if (machine.state / "current").exists():
            node = machine.node()
            (found,) = (n for n in site.asked("nodes", "list")["items"] if n["id"] == node)
            if found["state"] == "active":
                return
        assert time.monotonic() < deadline, machine.said.read_text()
        time.sleep(0.2)


def _assert_nowhere(site: Site, events: str) -> None:
    """Look that no log, event or list has what a command says."""
    logs = "".join(log.read_text() for log in site.folder.glob("*.log"))
    listed = site.run("commands", "list", "--json")
    for text in (logs, listed, events):
        assert SAID not in text
        assert "correct-horse" not in text
    assert site.asked("rebuild", "--check")["items"] == []


async def test_restriction_in_between_stops_the_command(
    site: Site, kafka_broker: EmbeddedKafka
) -> None:
    """The operator evicts the node before it has asked: what waited is refused, and everybody is told."""
    machine = await asyncio.to_thread(Machine, site, "evicted")
    with machine.agent():
        await asyncio.to_thread(_await_active, site, machine)
    node = machine.node()
    command = await asyncio.to_thread(send, site, node)
    await asyncio.to_thread(site.run, "nodes", "evict", node, "--yes", "--why", "a test")
    with machine.agent():
        row = await asyncio.to_thread(await_state, site, command, "refused")

    assert (row["reason"], row["dispatchedAt"]) == ("node-state", None)
    assert machine.done() == ""
    with pytest.raises(AssertionError, match="may not be told"):
        await asyncio.to_thread(send, site, node)
    deadline = time.monotonic() + READY_S
    while True:
        types = [event["type"] for event in await events_of(kafka_broker, node)]
        if types.count("node.command.refused") == 2:
            break
        assert time.monotonic() < deadline, types
        await asyncio.sleep(0.2)
    assert "node.command.dispatched" not in types
