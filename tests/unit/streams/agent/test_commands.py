"""An agent does what it is told: once, whatever ends its process, and by nobody's hand but the service's."""

import asyncio
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from uuid_utils.compat import uuid7

from tests.support.agents import Machine, Reaction
from tests.support.crypto import NODE_ID, jws_signer
from tests.support.dying import dies_at
from tests.support.waiting import until
from watchword.handlers.crypto.commands import FetchEvidence, sign_command, signed_text
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.crypto.renewals import holds
from watchword.schemas.canonical import b64
from watchword.schemas.commands import Command, Report
from watchword.schemas.responses import TYP_RESPONSE
from watchword.schemas.times import rfc3339
from watchword.streams.agent.command_journal import CommandJournal, Entry
from watchword.streams.agent.commander import Commander, CommandOptions
from watchword.streams.agent.errors import HandlersUnusable
from watchword.streams.agent.trust import TrustKeeper

HANDLER = """#!/bin/sh
{{ echo "$WATCHWORD_COMMAND_KIND" "$WATCHWORD_COMMAND_ID"; cat; env; pwd; }} >> {log}
exit {status}
"""


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "state")
    await machine.join(machine.service.joined)
    machine.wire.sent.clear()
    (tmp_path / "handlers").mkdir(mode=0o755)
    return machine


def handlers(machine: Machine) -> Path:
    return machine.state.parent / "handlers"


def log(machine: Machine) -> Path:
    return machine.state.parent / "log"


def handler(
    machine: Machine, kind: str = "disk.wipe", script: str = HANDLER, *, status: int = 0
) -> Path:
    path = handlers(machine) / kind
    path.write_text(script.format(log=log(machine), status=status))
    path.chmod(0o755)
    return path


def command(machine: Machine, **changes: Any) -> Command:  # noqa: ANN401 - members of a command
    identity = machine.keystore.identity()
    assert identity is not None
    members: dict[str, Any] = {
        "id": str(uuid7()),
        "node_id": NODE_ID,
        "certificate_serial": identity.node.serial,
        "kind": "disk.wipe",
        "payload": b64(b"all of it"),
        "not_after": rfc3339(machine.service.now + timedelta(hours=1)),
    }
    return Command(**members | changes)


def telling(machine: Machine, *commands: Command) -> Reaction:
    return lambda request: machine.service.told(request, *commands)


def commander(machine: Machine, *, limit_s: float = 30.0) -> Commander:
    trust = TrustKeeper(machine.keystore, machine.wire, pace=machine.time.pace)
    options = CommandOptions(handlers(machine), limit_s=limit_s)
    return Commander(machine.keystore, machine.wire, trust, options, pace=machine.time.pace)


async def tend(machine: Machine, *reactions: Reaction, limit_s: float = 30.0) -> None:
    """Do what the service says, as a process that has just started."""
    machine.wire.then(*reactions)
    with machine.keystore.locked():
        await commander(machine, limit_s=limit_s).tend()
    assert not machine.wire.reactions


def reports(machine: Machine) -> list[list[Report]]:
    """Return what each request so far has reported."""
    return [list(evidence(machine, request).reports.items) for request in machine.wire.sent]


def evidence(machine: Machine, request: bytes) -> FetchEvidence:
    return FetchEvidence.decode(machine.service.open(request)[2])


async def test_handler_gets_the_payload_and_its_end_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the agent's environment, no shell, no arguments: what the command says is on standard input."""
    monkeypatch.setenv("OF_THE_AGENT", "x")
    handler(machine)
    one = command(machine)
    await tend(machine, telling(machine, one), telling(machine))

    kind, payload, *rest = log(machine).read_text().split("\n")
    assert kind == f"disk.wipe {one.id}"
    assert payload.startswith("all of it")
    text = "\n".join((payload, *rest))
    assert f"WATCHWORD_NODE_ID={NODE_ID}" in text
    assert "OF_THE_AGENT" not in text
    assert text.rstrip().endswith("/")
    assert reports(machine) == [[], [Report(id=one.id, result="done", exit_status=0)]]


async def test_request_is_signed_with_the_current_key_and_always_has_a_reply_key(
    machine: Machine,
) -> None:
    """Whoever cannot sign with the node's key must not get its commands; whoever listens must not read them."""
    await tend(machine, telling(machine))

    identity = machine.keystore.identity()
    assert identity is not None
    leaf = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    [request] = machine.wire.sent
    read, csr, _, _ = machine.service.open(request)
    shown = evidence(machine, request)
    assert (read.kind, read.attestor) == ("commands", "command")
    assert read.reply_key is not None
    assert csr.public_key == leaf.public_key()
    assert shown.tbs_sha256 == sha256(leaf.tbs_certificate_bytes).digest()
    text = signed_text(shown.tbs_sha256, csr.sha256, read.request_id, shown.reports)
    assert holds(load_public_key(shown.spki_der), shown.signature, text)


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


NOT_DONE: dict[str, tuple[Callable[[Machine], Any], dict[str, Any], str]] = {
    "no handler": (lambda m: handler(m).unlink(), {}, "no-handler"),
    "not executable": (lambda m: handler(m).chmod(0o644), {}, "no-handler"),
    "others may write to it": (lambda m: handler(m).chmod(0o777), {}, "no-handler"),
    "a link": (
        lambda m: (handlers(m) / "disk.wipe").symlink_to("/bin/true"),
        {},
        "no-handler",
    ),
    "not a program": (lambda m: handler(m, script="\0"), {}, "no-handler"),
    "too late": (handler, {"not_after": "2020-01-01T00:00:00.000Z"}, "too-late"),
}


@pytest.mark.parametrize("what", NOT_DONE)
async def test_command_that_cannot_be_done_is_reported_and_not_run(
    machine: Machine, what: str
) -> None:
    """Whoever sent it sees why; and nothing that somebody else has put there is run."""
    prepare, changes, result = NOT_DONE[what]
    prepare(machine)
    one = command(machine, **changes)
    await tend(machine, telling(machine, one), telling(machine))

    assert not log(machine).exists()
    assert reports(machine)[1] == [Report(id=one.id, result=result)]  # type: ignore[arg-type]


async def test_kind_that_the_certificate_does_not_allow_is_not_run(machine: Machine) -> None:
    """The node knows itself what it may be told: a service that was taken over cannot widen it."""
    handler(machine)
    path = machine.state / "current" / "node.json"
    record = json.loads(path.read_bytes())
    record["allowedKinds"] = ["wipe"]
    path.write_bytes(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())
    one = command(machine)
    await tend(machine, telling(machine, one), telling(machine))

    assert not log(machine).exists()
    assert [r.result for r in reports(machine)[1]] == ["not-for-us"]


@pytest.mark.parametrize(
    "changes",
    [
        {"node_id": "0190163d-8694-739b-aea5-000000000000"},
        {"certificate_serial": "0" * 32},
    ],
)
async def test_command_for_another_node_or_certificate_is_left_alone(
    machine: Machine, changes: dict[str, str]
) -> None:
    """What was checked against another certificate says nothing about this one."""
    handler(machine)
    await tend(machine, telling(machine, command(machine, **changes)))

    assert not log(machine).exists()
    assert not (machine.state / "commands").exists()


@pytest.mark.parametrize("fake", ["another key", "another type"])
async def test_command_that_the_service_did_not_sign_is_left_alone(
    machine: Machine, fake: str
) -> None:
    """Each command is signed by itself, as a command: nothing else that the service signs can be made one."""
    handler(machine)
    one = command(machine)

    def forged(request: bytes) -> bytes:
        service = machine.service
        token = (
            sign_command(jws_signer(), one)
            if fake == "another key"
            else service.jws.sign(one.write(), TYP_RESPONSE)
        )
        content = {"items": [token.decode()], "more": False}
        return service.answers._answer(service.question(request), service.now, "commands", content)

    await tend(machine, forged)
    assert not log(machine).exists()


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


async def test_refused_node_asks_again_much_later(machine: Machine) -> None:
    """Each refusal is an event that somebody reads."""
    once = commander(machine)
    machine.wire.then(machine.service.refused, telling(machine))
    await once.tend()
    machine.time.pass_by(3000)
    await once.tend()
    assert len(machine.wire.sent) == 1
    machine.time.pass_by(3600)
    await once.tend()
    assert len(machine.wire.sent) == 2


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


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
async def test_agent_does_not_start_with_handlers_that_others_can_change(
    machine: Machine, mode: int
) -> None:
    """Whoever can write there can have anything run as the agent's user, which often is root."""
    handlers(machine).chmod(mode)
    with pytest.raises(HandlersUnusable, match="others can write"):
        commander(machine)


async def test_agent_does_not_start_below_a_folder_that_others_can_change(
    machine: Machine,
) -> None:
    """They could put another folder in its place."""
    machine.state.parent.chmod(0o777)
    with pytest.raises(HandlersUnusable, match="others can write"):
        commander(machine)


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
