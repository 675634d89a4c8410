"""A command is run once, whatever ends a process, and its end is known."""

import asyncio
import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.agent_commands import (
    command,
    commander,
    evidence,
    handler,
    log,
    reports,
    telling,
    tend,
    with_handlers,
)
from tests.support.agents import Machine, Reaction
from tests.support.crypto import NODE_ID
from tests.support.dying import dies_at
from tests.support.waiting import until
from watchword.schemas.commands import Report
from watchword.streams.agent.command_journal import CommandJournal, Entry


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    return await with_handlers(tmp_path)


async def test_command_that_comes_again_is_not_run_again(machine: Machine) -> None:
    """The service says it until it knows the end; the answer with it may come late, or twice."""
    handler(machine)
    one = command(machine)
    await tend(machine, telling(machine, one, one), telling(machine, one))
    await tend(machine, telling(machine, one))

    assert log(machine).read_text().count(one.id) == 2  # its line, and its environment
    assert [[r.id for r in said] for said in reports(machine)] == [[], [one.id], []]


async def test_report_is_made_again_until_the_service_has_taken_it(machine: Machine) -> None:
    """An answer that is lost, or a service that is away, must not leave an operator without the end of it."""
    handler(machine, status=7)
    one = command(machine)
    away: Reaction = lambda request: machine.service.failed(request, "UNAVAILABLE")  # noqa: E731
    await tend(machine, telling(machine, one), away)
    await tend(machine, telling(machine))
    await tend(machine, telling(machine))

    told = Report(id=one.id, result="failed", exit_status=7)
    assert reports(machine) == [[], [told], [told], []]


async def test_handler_that_takes_too_long_is_stopped_with_all_it_has_started(
    machine: Machine,
) -> None:
    """A hanging script must not keep the next command waiting for ever."""
    handler(machine, script="#!/bin/sh\nsleep 600 & echo $! > {log}\nwait\n")
    one = command(machine)
    await tend(machine, telling(machine, one), telling(machine), limit_s=0.5)

    assert [r.result for r in reports(machine)[1]] == ["timed-out"]
    child = int(log(machine).read_text())
    await until(lambda: _state(child) == "Z", "what it had started is stopped")


def _state(pid: int) -> str:
    """Return the state of a process; Z if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0]
    except OSError:
        return "Z"


async def test_command_that_the_machine_went_down_with_is_interrupted_and_never_begun_again(
    machine: Machine,
) -> None:
    """Nobody knows how far it came: running it again might do it twice."""
    handler(machine)
    one = command(machine)
    with machine.keystore.locked():
        CommandJournal(machine.state / "commands").accept(one)
    (machine.state / "commands" / one.id / "started").touch()
    await tend(machine, telling(machine))

    assert not log(machine).exists()
    assert reports(machine) == [[Report(id=one.id, result="interrupted")]]


async def test_command_that_an_agent_before_has_begun_is_waited_for_without_haste(
    machine: Machine,
) -> None:
    """It may take an hour: what comes after it waits, and the service is not asked again and again meanwhile."""
    handler(machine)
    begun, waits = command(machine), command(machine)
    with machine.keystore.locked():
        entry = CommandJournal(machine.state / "commands").accept(begun)
    (entry.folder / "started").touch()
    lock = os.open(entry.folder / "running", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    more: Reaction = lambda request: machine.service.told(request, begun, waits, more=True)  # noqa: E731
    await tend(machine, more, more)
    assert not log(machine).exists()

    entry.end("done")
    os.close(lock)
    await tend(machine, telling(machine))
    assert waits.id in log(machine).read_text()
    assert [[r.id for r in said] for said in reports(machine)] == [[], [], [begun.id, waits.id]]


async def test_what_is_over_is_forgotten_and_not_before(machine: Machine) -> None:
    """The id has to be known for as long as the command can come again, and no disk fills up for ever."""
    handler(machine)
    one = command(machine)
    await tend(machine, telling(machine, one), telling(machine))
    folder = machine.state / "commands" / one.id
    assert sorted(path.name for path in folder.iterdir()) == [
        "command.json", "ended", "reported", "running", "started",
    ]  # fmt: skip

    machine.time.pass_by(86_400 + 3000)
    await tend(machine, telling(machine))
    assert folder.exists()
    machine.time.pass_by(700)
    await tend(machine, telling(machine))
    assert not folder.exists()


def test_machine_that_dies_at_any_write_runs_the_command_once(tmp_path: Path) -> None:
    """At each step between the answer and the report: it is run once in the end, and its end is known."""
    prepared = Machine(tmp_path / "joined" / "state")
    asyncio.run(prepared.join(prepared.service.joined))
    (tmp_path / "joined" / "handlers").mkdir(mode=0o755)
    handler(prepared)
    one = command(prepared)
    deaths = 0
    for call in range(1, 500):
        root = shutil.copytree(tmp_path / "joined", tmp_path / str(call), symlinks=True)
        machine = Machine.__new__(Machine)
        machine.__dict__.update(prepared.__dict__)
        machine.state, machine.keystore = root / "state", type(prepared.keystore)(root / "state")
        handler(machine)
        ended = root / "known"

        def known(request: bytes, machine: Machine = machine, ended: Path = ended) -> bytes:
            for report in evidence(machine, request).reports.items:
                ended.write_text(report.result)
            return prepared.service.told(request, *(() if ended.exists() else (one,)))

        def work(machine: Machine = machine, known: Reaction = known) -> None:
            machine.wire.reactions.clear()
            machine.wire.then(*[known] * 9)
            with machine.keystore.locked():
                asyncio.run(commander(machine).tend())

        died = dies_at(call, work)
        deaths += died
        deadline = time.monotonic() + 20
        while not ended.exists():
            assert time.monotonic() < deadline
            work()

        assert ended.read_text() == "done"
        assert log(machine).read_text().count(f"disk.wipe {one.id}") == 1, call
        work()
        assert log(machine).read_text().count(f"disk.wipe {one.id}") == 1, call
        if not died:
            break
    assert deaths > 10


def test_two_supervisors_run_a_command_once(tmp_path: Path) -> None:
    """An agent was killed just as it started one, and the next agent starts another."""
    machine = Machine(tmp_path / "state")
    asyncio.run(machine.join(machine.service.joined))
    (tmp_path / "handlers").mkdir(mode=0o755)
    path = handler(machine)
    with machine.keystore.locked():
        entry = CommandJournal(machine.state / "commands").accept(command(machine))
    made = commander(machine)
    both = [made._supervised(entry, path, NODE_ID) for _ in range(4)]
    codes = sorted(process.wait(30) for process in both)

    assert codes == [0, 3, 3, 3]
    assert log(machine).read_text().count(f"disk.wipe {entry.command.id}") == 1
    assert Entry(entry.folder, entry.command).stage() == "ended"
