"""Real agent processes, killed where it hurts."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.agents import Service
from tests.support.crypto import NODE_ID
from tests.support.http_service import Answer, Call, ScriptedGateway, serving
from tests.support.waiting import until
from watchword.handlers.attestors.join_token.evidence import new_token

_MAX_MIB = 96
"""What a running agent may take; measured: 70 MiB, of which 46 are its own."""


class Agent:
    """The agent's commands, as processes of their own."""

    def __init__(self, folder: Path, service: Service) -> None:
        """Write a token."""
        self.state = folder / "state"
        self.token = new_token()[1]
        self._token_file = folder / "token"
        self._token_file.write_text(self.token)
        self._service = service
        self._errors = folder / "stderr"
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WATCHWORD")
        }

    async def start(self, command: str, *options: str) -> Process:
        """Start a command that is not awaited."""
        with self._errors.open("ab") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from watchword.streams.cli import main; main()",
                "agent",
                command,
                "--state",
                str(self.state),
                "--json",
                *options,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=self._environment,
            )

    async def joining(self, command: str, url: str, *options: str) -> Process:
        """Start `join` or `run`."""
        token = ("--token-file", str(self._token_file))
        return await self.start(command, "--gateway", url, *token, *options)

    async def finish(self, process: Process) -> tuple[int, dict[str, Any]]:
        """Return exit code and output."""
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(output) if output.strip() else {}

    async def bootstrap(self, url: str) -> None:
        """Pin the service."""
        process = await self.start("bootstrap", "--gateway", url, "--pin", self._service.pin)
        code, _ = await self.finish(process)
        assert code == 0, self.said()

    def said(self) -> str:
        """Return everything that was written to standard error."""
        return self._errors.read_text()

    def check_files(self) -> None:
        """Look that the current files are of one set."""
        current = self.state / "current"
        key = load_pem_private_key((current / "key.pem").read_bytes(), None)
        leaf = x509.load_pem_x509_certificate((current / "cert.pem").read_bytes())
        assert leaf.public_key() == key.public_key()


@pytest.fixture
def service() -> Service:
    return Service(now=datetime.now(UTC))


@pytest.fixture
def gateway(service: Service) -> ScriptedGateway:
    return ScriptedGateway(service)


@pytest.fixture
async def agent(tmp_path: Path, service: Service) -> Agent:
    return Agent(tmp_path, service)


@asynccontextmanager
async def stopped_at(
    gateway: ScriptedGateway, agent: Agent, url: str, call_of: str
) -> AsyncGenerator[None]:
    """Let an agent run until a call of this kind arrives, kill it there, and go on."""
    arrived = asyncio.Event()

    async def hold(call: Call) -> Answer | None:
        if f"{call.method} {call.path}".startswith(call_of):
            arrived.set()
            await asyncio.Event().wait()
        return None

    gateway.hold = hold
    process = await agent.joining("run", url)
    async with asyncio.timeout(60):
        await arrived.wait()
    process.kill()
    await process.wait()
    gateway.hold = None
    yield


@pytest.mark.parametrize("call_of", ["POST /v1/joins", "GET /v1/joins/"])
async def test_killed_agent_goes_on_with_the_same_bytes(
    gateway: ScriptedGateway, agent: Agent, service: Service, call_of: str
) -> None:
    """SIGKILL between sending and hearing: the request may have been judged, so it is the same one."""
    gateway.reactions = [lambda _: None, service.joined]
    if call_of.startswith("POST"):
        gateway.reactions.pop(0)
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        async with stopped_at(gateway, agent, url, call_of):
            exchange = sorted(path.name for path in (agent.state / "exchange").iterdir())
            assert exchange == ["csr.der", "key.pem", "round.json"]
        code, found = await agent.finish(await agent.joining("join", url))

    assert (code, found["state"], found["node"]["nodeId"]) == (0, "joined", NODE_ID)
    assert len(set(gateway.posted)) == 1
    agent.check_files()


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.02])
async def test_agent_killed_while_it_installs_has_its_files_when_it_comes_back(
    gateway: ScriptedGateway, agent: Agent, service: Service, after_s: float
) -> None:
    """The answer is out; whatever the agent had time for, the next one ends with one whole set."""
    gateway.reactions = [service.joined] * 2
    polled = asyncio.Event()

    async def note(call: Call) -> None:
        if call.method == "GET" and "/joins/" in call.path:
            polled.set()

    gateway.hold = note
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        process = await agent.joining("run", url)
        async with asyncio.timeout(60):
            await polled.wait()
        # How far it gets in this time is not known, and must not matter.
        await asyncio.sleep(after_s)
        process.kill()
        await process.wait()
        code, found = await agent.finish(await agent.joining("join", url))

    assert (code, found["state"]) == (0, "joined")
    assert len(set(gateway.posted)) == 1
    agent.check_files()
    assert not (agent.state / "exchange").exists()


async def test_running_agent_renews_and_goes_on_when_it_is_killed_in_between(
    gateway: ScriptedGateway, agent: Agent, service: Service
) -> None:
    """SIGKILL while the renewal is on its way: the next agent asks for the same key, and gets it."""
    gateway.reactions = [service.due, lambda _: None, service.joined]
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        process = await agent.joining("run", url)
        await until(lambda: len(gateway.posted) == 2, "it asked for a renewal", within_s=60)
        process.kill()
        await process.wait()
        process = await agent.joining("run", url)
        sets = agent.state / "identity"
        await until((sets / "000002").is_dir, "it renewed", within_s=60)
        await until(lambda: not (agent.state / "renewal").exists(), "it is done", within_s=60)
        process.send_signal(signal.SIGTERM)
        code, _ = await agent.finish(process)

    assert code == 0, agent.said()
    joined, *renewals = gateway.posted
    assert len(set(renewals)) == 1
    assert [service.open(request)[0].kind for request in (joined, renewals[0])] == ["join", "renew"]
    agent.check_files()


async def test_running_agent_is_small_and_ends_on_sigterm(
    gateway: ScriptedGateway, agent: Agent, service: Service
) -> None:
    """It sits on every machine of a fleet, next to what the machine is for."""
    gateway.reactions = [service.joined]
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        process = await agent.joining("run", url)
        await until((agent.state / "current").is_symlink, "it joined", within_s=60)
        rss = rss_kib(process.pid)
        process.send_signal(signal.SIGTERM)
        code, _ = await agent.finish(process)

    assert code == 0, agent.said()
    assert rss < _MAX_MIB * 1024


def rss_kib(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


async def test_waiting_agent_ends_on_sigterm_and_goes_on(
    gateway: ScriptedGateway, agent: Agent, service: Service
) -> None:
    """A restart for an update must not cost the place in the operator's queue."""
    gateway.reactions = [service.approval]
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        process = await agent.joining("run", url)
        await until(lambda: "waiting" in str(agent_status(agent)), "it waits", within_s=60)
        process.send_signal(signal.SIGTERM)
        code, _ = await agent.finish(process)
        _, found = await agent.finish(await agent.start("status"))

    assert code == 0
    assert found["exchange"]["waiting"] == "for-approval"
    assert len(gateway.posted) == 1


def agent_status(agent: Agent) -> str:
    """Return whether the round on the disk has been deferred."""
    with suppress(OSError, ValueError):
        current = json.loads((agent.state / "exchange" / "round.json").read_bytes())
        return "waiting" if current["retryAtMs"] is not None else "sent"
    return "nothing"


async def test_exit_codes_tell_scripts_what_happened(
    gateway: ScriptedGateway, agent: Agent, service: Service
) -> None:
    """A provisioning tool decides by them whether to try again."""
    gateway.reactions = [service.refused]
    codes: dict[str, int] = {}
    async with serving(gateway) as url:
        process = await agent.joining("join", url)
        codes["no pin"], _ = await agent.finish(process)
        await agent.bootstrap(url)
        codes["refused"], _ = await agent.finish(await agent.joining("join", url))
        waiting = await agent.joining("join", url, "--give-up-after", "1s")
        codes["gave up"], _ = await agent.finish(waiting)
    away = await agent.start("bootstrap", "--gateway", url, "--pin", service.pin)
    codes["away"], _ = await agent.finish(away)

    assert codes == {"no pin": 1, "refused": 5, "gave up": 75, "away": 69}
    assert "Join refused" in agent.said()


async def test_token_is_nowhere_but_in_its_file(
    gateway: ScriptedGateway, agent: Agent, service: Service
) -> None:
    """Not in logs, not in arguments, not in the state directory, and not on the wire."""
    gateway.reactions = [lambda _: None, service.joined]
    async with serving(gateway) as url:
        await agent.bootstrap(url)
        async with stopped_at(gateway, agent, url, "GET /v1/joins/"):
            secret = agent.token.rsplit(".", 1)[1]
            written = [path for path in agent.state.rglob("*") if path.is_file()]
            assert not [path for path in written if secret.encode() in path.read_bytes()]
        await agent.finish(await agent.joining("join", url))

    assert secret not in agent.said()
    assert not [body for body in gateway.posted if secret.encode() in body]
