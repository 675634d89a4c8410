"""`agent run`: what it keeps, whom it tells, and how it ends."""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Generator
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.agents import Machine
from tests.support.crypto import NODE_ID, NOW, TRUST_DOMAIN
from tests.support.waiting import until
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.schemas.requests import Claims
from watchword.streams.agent.daemon import RunOptions, run
from watchword.streams.agent.errors import JoinRefused, StateBusy
from watchword.streams.agent.join import JoinOptions
from watchword.streams.agent.systemd import Notifier

JOIN = JoinOptions(claims=Claims)


class Systemd:
    """The socket that systemd would listen on."""

    def __init__(self, path: Path) -> None:
        """Listen."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0)
        self.environment = {"NOTIFY_SOCKET": str(path), "PATH": os.environ["PATH"]}
        self._said: list[str] = []

    def said(self) -> list[str]:
        """Return every line so far."""
        while True:
            try:
                self._said += self._socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return self._said

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "state")
    # The daemon's chores wait for real; the joins of these tests do not wait at all.
    object.__setattr__(machine.time.pace, "sleep", asyncio.sleep)
    object.__setattr__(machine.time.pace, "first_s", 0.01)
    return machine


@pytest.fixture
def systemd(tmp_path: Path) -> Generator[Systemd]:
    listener = Systemd(tmp_path / "notify")
    yield listener
    listener.close()


def hook(tmp_path: Path, script: str) -> tuple[str, ...]:
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path),)


def is_alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def start(machine: Machine, options: RunOptions) -> asyncio.Task[None]:
    return asyncio.create_task(
        run(
            machine.state,
            machine.wire,
            machine.prover,
            options,
            pace=machine.time.pace,
        )
    )


async def stop(task: asyncio.Task[None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await task


async def test_agent_joins_tells_systemd_and_ends_on_sigterm(
    machine: Machine, systemd: Systemd
) -> None:
    """Type=notify: up as soon as it works, alive while it does, and a clean end."""
    machine.wire.then(machine.service.joined)
    environment = systemd.environment | {"WATCHDOG_USEC": "20000"}
    task = start(machine, RunOptions(join=JOIN, environment=environment))

    await until(lambda: systemd.said().count("WATCHDOG=1") > 3, "the watchdog was fed", within_s=60)
    await until(
        lambda: f"STATUS=node {NODE_ID}" in systemd.said(), "it said that it is a node", within_s=60
    )
    await stop(task)

    assert systemd.said()[0] == "READY=1"
    assert systemd.said()[-1] == "STOPPING=1"
    assert any(line.startswith("STATUS=asking to join, CSR SHA-256 ") for line in systemd.said())
    with machine.keystore.locked():
        assert machine.keystore.identity() is not None


async def test_agent_that_waits_for_an_operator_is_up_and_ends_cleanly(
    machine: Machine, systemd: Systemd
) -> None:
    """An approval may take days; a start time-out must not kill the agent, nor SIGTERM lose the round."""
    machine.wire.then(machine.service.approval)
    task = start(machine, RunOptions(join=JOIN, environment=systemd.environment))
    await until(
        lambda: any("waiting for an operator" in line for line in systemd.said()),
        "it waits",
        within_s=60,
    )
    await stop(task)

    exchange = machine.keystore.exchange()
    assert exchange is not None
    assert exchange.round() is not None
    assert "READY=1" in systemd.said()


async def test_refused_agent_ends_with_the_refusal(machine: Machine, systemd: Systemd) -> None:
    """Asking again and again would only fill the security team's stream."""
    machine.wire.then(machine.service.refused)

    with pytest.raises(JoinRefused):
        await start(machine, RunOptions(join=JOIN, environment=systemd.environment))
    assert systemd.said()[-1] == "STOPPING=1"


async def test_joined_agent_asks_nobody_to_join(machine: Machine) -> None:
    """A restart is no join."""
    await machine.join(machine.service.joined)
    task = start(machine, RunOptions(join=JOIN))
    await asyncio.sleep(0)
    await until(lambda: not task.done(), "it runs", within_s=60)
    await stop(task)

    assert len(machine.wire.sent) == 1


async def test_second_agent_does_not_start(machine: Machine) -> None:
    """Two would overwrite each other's files."""
    with machine.keystore.locked(), pytest.raises(StateBusy):
        await start(machine, RunOptions(join=JOIN))


async def test_hook_runs_once_for_each_new_set(
    machine: Machine, tmp_path: Path, systemd: Systemd
) -> None:
    """Services reload when there is something new, and only then, also over restarts."""
    log = tmp_path / "log"
    log.touch()
    script = f'[ -z "$NOTIFY_SOCKET" ] && readlink "$WATCHWORD_CURRENT" >> {log}'
    options = RunOptions(
        join=JOIN,
        reload_command=hook(tmp_path, script),
        refresh_s=0.01,
        environment=systemd.environment,
    )
    machine.wire.then(machine.service.joined)
    task = start(machine, options)
    await until((machine.state / "reloaded").exists, "the hook ran", within_s=60)
    await stop(task)

    key, certificate = create_ca(TRUST_DOMAIN, now=NOW)
    machine.service.authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)
    machine.service.version = 2
    task = start(machine, options)
    await until(
        lambda: (machine.state / "reloaded").read_bytes() == b"000002",
        "it ran for the new bundle",
        within_s=60,
    )
    fetched = machine.wire.fetched
    await until(
        lambda: machine.wire.fetched > fetched + 3, "nothing changed three times", within_s=60
    )
    await stop(task)

    assert log.read_text().split() == ["identity/000001", "identity/000002"]
    bundle = (machine.state / "current" / "bundle.pem").read_bytes()
    assert x509.load_pem_x509_certificates(bundle) == [certificate]


async def test_hook_that_fails_runs_again(machine: Machine, tmp_path: Path) -> None:
    """A service that cannot reload now would otherwise keep the old certificate until it ends."""
    log = tmp_path / "log"
    log.touch()
    command = hook(tmp_path, f"echo x >> {log}; [ $(wc -l < {log}) -gt 2 ]")
    machine.wire.then(machine.service.joined)
    environment = {"PATH": os.environ["PATH"]}
    task = start(machine, RunOptions(join=JOIN, reload_command=command, environment=environment))
    await until((machine.state / "reloaded").exists, "the hook ended well", within_s=60)
    await stop(task)

    assert log.read_text() == "x\n" * 3


async def test_hook_that_is_missing_or_hangs_stops_nothing(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own work must go on, and SIGTERM must end it and the command."""
    monkeypatch.setattr("watchword.streams.agent.reload_hook._PATIENCE_S", 0.5)
    machine.wire.then(machine.service.joined)
    missing = RunOptions(join=JOIN, reload_command=("/nonexistent",), refresh_s=0.01)
    task = start(machine, missing)
    await until(lambda: machine.wire.fetched > 3, "it goes on fetching", within_s=60)
    await stop(task)

    log = tmp_path / "log"
    log.touch()
    command = hook(tmp_path, f"echo $$ >> {log}; exec sleep 600")
    options = RunOptions(join=JOIN, reload_command=command, environment=os.environ)
    task = start(machine, options)
    await until(lambda: log.read_text().count("\n") > 1, "it ran again", within_s=60)
    await stop(task)

    assert not (machine.state / "reloaded").exists()
    assert not [pid for pid in log.read_text().split() if is_alive(pid)]


async def test_chore_that_fails_is_done_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk for an hour must not end an agent that has weeks of certificate left."""
    await machine.join(machine.service.joined)
    failures = 3

    def full(_: object, __: object, ___: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            message = "disk"
            raise OSError(28, message)

    monkeypatch.setattr("watchword.streams.agent.daemon.with_authorities", full)
    task = start(machine, RunOptions(join=JOIN, refresh_s=0.01))
    await until(lambda: failures == 0, "it was done until it worked", within_s=60)
    await stop(task)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nonexistent/socket", "WATCHDOG_USEC": "junk"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
async def test_without_systemd_nothing_is_said(environment: dict[str, str]) -> None:
    """The agent also runs from a shell, in a container, and below another service's watchdog."""
    notifier = Notifier.of(environment)
    notifier.notify("READY=1")
    async with asyncio.timeout(5):
        await notifier.keep_watchdog()


async def test_abstract_socket_is_reached(tmp_path: Path) -> None:
    """Older systemd names its socket so."""
    name = f"watchword-{tmp_path.name}-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        Notifier(f"@{name}").notify("READY=1", "STATUS=x")

        assert listener.recv(100) == b"READY=1\nSTATUS=x"
