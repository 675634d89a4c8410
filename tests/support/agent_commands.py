"""A machine that is told commands, and handlers that write down what was run."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from uuid_utils.compat import uuid7

from tests.support.agents import Machine, Reaction
from tests.support.crypto import NODE_ID
from watchword.handlers.crypto.commands import FetchEvidence
from watchword.schemas.canonical import b64
from watchword.schemas.commands import Command, Report
from watchword.schemas.times import rfc3339
from watchword.streams.agent.commander import Commander, CommandOptions
from watchword.streams.agent.trust import TrustKeeper

HANDLER = """#!/bin/sh
{{ echo "$WATCHWORD_COMMAND_KIND" "$WATCHWORD_COMMAND_ID"; cat; env; pwd; }} >> {log}
exit {status}
"""


async def with_handlers(folder: Path) -> Machine:
    """Return a machine that has joined, and may run what is put beside its state."""
    machine = Machine(folder / "state")
    await machine.join(machine.service.joined)
    machine.wire.sent.clear()
    (folder / "handlers").mkdir(mode=0o755)
    return machine


def handlers(machine: Machine) -> Path:
    """Return the folder of its handlers."""
    return machine.state.parent / "handlers"


def log(machine: Machine) -> Path:
    """Return the file in which handlers write what they were told."""
    return machine.state.parent / "log"


def handler(
    machine: Machine, kind: str = "disk.wipe", script: str = HANDLER, *, status: int = 0
) -> Path:
    """Put a handler there, and return its file."""
    path = handlers(machine) / kind
    path.write_text(script.format(log=log(machine), status=status))
    path.chmod(0o755)
    return path


def command(machine: Machine, **changes: Any) -> Command:  # noqa: ANN401 - members of a command
    """Return a command for this machine, with these members changed."""
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
    """Return what answers a request with these commands."""
    return lambda request: machine.service.told(request, *commands)


def commander(machine: Machine, *, limit_s: float = 30.0) -> Commander:
    """Return the part of the agent that does what it is told, as it starts."""
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
    """Return what the worker sees of a request for commands."""
    return FetchEvidence.decode(machine.service.open(request)[2])
