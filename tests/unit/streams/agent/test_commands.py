"""An agent does what it is told, and by nobody's hand but the service's."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.support.agent_commands import (
    command,
    commander,
    evidence,
    handler,
    handlers,
    log,
    reports,
    telling,
    tend,
    with_handlers,
)
from tests.support.agents import Machine
from tests.support.crypto import NODE_ID, jws_signer
from watchword.handlers.crypto.commands import sign_command, signed_text
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.crypto.renewals import holds
from watchword.schemas.commands import Report
from watchword.schemas.responses import TYP_RESPONSE
from watchword.streams.agent.errors import HandlersUnusable


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    return await with_handlers(tmp_path)


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
