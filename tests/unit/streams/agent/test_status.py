"""`agent status`, at every stage."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.agents import Crash, Machine, Reaction
from tests.support.crypto import NODE_ID
from watchword.streams.agent.status import status


async def test_status_tells_each_stage(tmp_path: Path) -> None:
    """Scripts wait for `joined`, and people want to know what it waits for."""
    assert status(tmp_path / "none").state == "not-bootstrapped"
    machine = Machine(tmp_path / "state")
    assert status(machine.state).state == "bootstrapped"
    waiting: list[str | None] = []

    def look(reaction: Reaction) -> Reaction:
        def looked(request: bytes) -> bytes | None:
            found = status(machine.state, clock=machine.time.clock)
            assert found.state == "joining"
            waiting.append(found.exchange.waiting if found.exchange else None)
            return reaction(request)

        return looked

    async def while_waiting(seconds: float) -> None:
        found = status(machine.state, clock=machine.time.clock)
        waiting.append(found.exchange.waiting if found.exchange else None)
        machine.time.pass_by(seconds)

    object.__setattr__(machine.time.pace, "sleep", while_waiting)
    await machine.join(look(machine.service.approval), look(machine.service.joined))

    assert waiting == ["for-answer", "for-approval", "for-answer"]
    found = status(machine.state, clock=machine.time.clock)
    assert (found.state, found.exchange) == ("joined", None)
    assert found.node is not None
    assert (found.node.node_id, found.node.is_due, found.node.is_expired) == (NODE_ID, False, False)
    machine.time.pass_by(timedelta(days=2).total_seconds())
    found = status(machine.state, clock=machine.time.clock)
    assert found.node is not None
    assert (found.node.is_due, found.node.is_expired) == (True, True)


async def test_status_is_json_with_stable_names_and_no_secret(tmp_path: Path) -> None:
    """Provisioning tools parse it."""
    machine = Machine(tmp_path)
    with pytest.raises(Crash):
        await machine.join(crash)
    exchange = machine.keystore.exchange()
    assert exchange is not None
    found = status(machine.state, clock=machine.time.clock).as_json()

    text = json.dumps(found)
    assert found["schemaVersion"] == 1
    assert found["trust"]["keySetVersion"] == 1
    assert found["exchange"] == {
        "csrSha256": exchange.csr_sha256.hex(),
        "attestor": "join-token",
        "role": "node",
        "waiting": "for-answer",
    }
    assert "PRIVATE" not in text
    assert json.loads(text) == found


async def test_status_says_that_the_clock_is_wrong(tmp_path: Path) -> None:
    """Else "not expired" would be a lie that nobody sees."""
    machine = Machine(tmp_path)
    machine.time.wall_s = datetime(1970, 1, 1, tzinfo=UTC).timestamp()

    assert status(machine.state, clock=machine.time.clock).clock_is_wrong


def crash(_: bytes) -> None:
    raise Crash
