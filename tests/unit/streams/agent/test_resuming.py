"""A process that dies goes on from the disk: the same bytes, the same key, and one set of files."""

import asyncio
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.agents import ChallengedProver, Crash, Machine
from tests.support.dying import check_set, dies_at
from watchword.schemas.requests import Claims
from watchword.schemas.responses import Failure
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.errors import JoinRefused, RequestNotUsable
from watchword.streams.agent.join import JoinOptions
from watchword.streams.agent.keystore import Keystore


def crash(_: bytes) -> None:
    raise Crash


async def test_request_that_was_sent_is_sent_again_byte_for_byte(machine: Machine) -> None:
    """It may have been judged already; other bytes would ask for a second judgement."""
    with pytest.raises(Crash):
        await machine.join(crash)
    await machine.join(machine.service.joined)

    assert machine.wire.sent[0] == machine.wire.sent[1]
    assert machine.progress[-2].step == "resuming"


async def test_answer_to_a_challenge_is_sent_again_byte_for_byte(machine: Machine) -> None:
    """What was spent for it may be spent already."""
    machine.prover = ChallengedProver()
    with pytest.raises(Crash):
        await machine.join(machine.service.challenge, crash)
    await machine.join(machine.service.joined)

    assert machine.wire.sent[1] == machine.wire.sent[2]


async def test_answer_to_a_challenge_that_ran_out_meanwhile_is_not_sent(machine: Machine) -> None:
    """It could only be refused; the CSR is the same, so nothing that was admitted is lost."""
    machine.prover = ChallengedProver()
    with pytest.raises(Crash):
        await machine.join(machine.service.challenge, crash)
    machine.time.pass_by(3600)
    await machine.join(machine.service.joined)

    requests = machine.sent()
    assert requests[2].state is None
    assert {request.csr for request in requests} == {requests[0].csr}


async def test_machine_that_lost_its_clock_does_not_trust_a_challenge(machine: Machine) -> None:
    """After a power cut a board without a battery cannot know how long it was away."""
    machine.prover = ChallengedProver()
    with pytest.raises(Crash):
        await machine.join(machine.service.challenge, crash)
    machine.time.wall_s = datetime(1970, 1, 1, tzinfo=UTC).timestamp()
    await machine.join(machine.service.joined)

    assert machine.sent()[2].state is None


async def test_rest_of_the_wait_for_an_operator_survives(machine: Machine) -> None:
    """A restart must neither ask at once nor wait all over again."""
    slept = machine.time.sleep

    async def die(seconds: float) -> None:
        machine.time.pass_by(10)
        del seconds
        raise Crash

    object.__setattr__(machine.time.pace, "sleep", die)
    with pytest.raises(Crash):
        await machine.join(machine.service.approval)
    object.__setattr__(machine.time.pace, "sleep", slept)
    await machine.join(machine.service.joined)

    first, second = machine.sent()
    assert first.request_id != second.request_id
    assert machine.time.slept == [pytest.approx(33.75 - 10, abs=0.01)]


@pytest.mark.parametrize("year", [1970, 2099])
async def test_wait_for_an_operator_is_bounded_whatever_the_clock_says(
    machine: Machine, year: int
) -> None:
    """A clock that jumps must not make a machine wait for decades."""

    async def die(_: float) -> None:
        raise Crash

    object.__setattr__(machine.time.pace, "sleep", die)
    with pytest.raises(Crash):
        await machine.join(machine.service.approval)
    object.__setattr__(machine.time.pace, "sleep", machine.time.sleep)
    machine.time.wall_s = datetime(year, 1, 1, tzinfo=UTC).timestamp()
    await machine.join(machine.service.joined)

    assert sum(machine.time.slept) <= 30


async def test_refusal_that_was_read_is_not_asked_for_again(machine: Machine) -> None:
    """The crash came between reading it and forgetting the exchange."""
    drop = machine.keystore.drop_exchange

    def die(_: Keystore) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keystore, "drop_exchange", die)
        with pytest.raises(Crash):
            await machine.join(machine.service.refused)
    with pytest.raises(JoinRefused):
        await machine.join()

    assert len(machine.wire.sent) == 1
    drop()


async def test_challenge_that_was_read_is_asked_for_anew(machine: Machine) -> None:
    """Nobody knows how old it is by now, and another one is free."""

    class Dying(ChallengedProver):
        async def answer(self, challenge: bytes, csr_sha256: bytes, role: object) -> bytes:
            del challenge, csr_sha256, role
            raise Crash

    machine.prover = Dying()
    with pytest.raises(Crash):
        await machine.join(machine.service.challenge)
    machine.prover = ChallengedProver()
    await machine.join(machine.service.joined)

    assert [request.state for request in machine.sent()] == [None, None]


async def test_other_attestor_or_role_does_not_go_on_with_the_old_round(machine: Machine) -> None:
    """A person who changes the command means it."""
    with pytest.raises(Crash):
        await machine.join(crash)
    await machine.join(machine.service.joined, options=JoinOptions(role="ramdisk", claims=Claims))

    first, second = machine.sent()
    assert (first.role, second.role) == ("node", "ramdisk")
    assert first.csr == second.csr


async def test_round_is_left_behind_when_told(machine: Machine) -> None:
    """A wrong token in a round that nobody answered must not come back for ever."""
    with pytest.raises(Crash):
        await machine.join(crash)
    await machine.join(machine.service.joined, options=JoinOptions(anew=True, claims=Claims))

    first, second = machine.sent()
    assert first.request_id != second.request_id


async def test_damaged_round_is_as_good_as_none(machine: Machine) -> None:
    """A bad sector must not strand a machine that still has its key."""
    with pytest.raises(Crash):
        await machine.join(crash)
    (machine.state / "exchange" / "round.json").write_bytes(b'{"version":1}')
    await machine.join(machine.service.joined)

    first, second = machine.sent()
    assert first.csr == second.csr
    assert first.request_id != second.request_id


@pytest.mark.parametrize("code", ["INVALID_INPUT", "UNSUPPORTED"])
async def test_failure_that_was_read_is_told_again(machine: Machine, code: Failure) -> None:
    """The person who restarts the agent must learn what the first one would have said."""

    def die(_: Keystore) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keystore, "drop_exchange", die)
        with pytest.raises(Crash):
            await machine.join(lambda request: machine.service.failed(request, code))
    with pytest.raises(RequestNotUsable):
        await machine.join()


def test_machine_that_dies_at_any_write_joins_when_it_comes_back(tmp_path: Path) -> None:
    """Whatever is on the disk then: one key, no half-written file taken for a whole one, one node."""
    reached = 0
    for call in range(1, 500):
        machine = Machine(tmp_path / str(call))
        sent = tmp_path / f"{call}.sent"

        def joined(request: bytes, machine: Machine = machine, sent: Path = sent) -> bytes:
            with sent.open("ab", buffering=0) as log:
                log.write(request + b"\n")
            return machine.service.joined(request)

        def work(machine: Machine = machine, joined: Callable[[bytes], bytes] = joined) -> None:
            asyncio.run(machine.join(joined))

        died = dies_at(call, work)
        check_set(machine.state)
        result = asyncio.run(machine.join(joined))

        assert check_set(machine.state) == result.identity
        assert machine.keystore.exchange() is None
        assert not [path for path in machine.state.rglob(".new-*") if path.is_file()]
        requests = set(sent.read_bytes().split(b"\n")) - {b""}
        assert len(requests) == 1
        if not died:
            break
        reached = call
    assert reached > 40


def test_machine_that_dies_while_it_joins_again_has_the_old_files_or_the_new(
    tmp_path: Path,
) -> None:
    """Services that read them in that moment go on with a set that fits."""
    seen: set[str] = set()
    machine = Machine(tmp_path / "joined")
    asyncio.run(machine.join(machine.service.joined))
    options = JoinOptions(again=True, claims=Claims)
    for call in range(1, 500):
        machine.state = shutil.copytree(tmp_path / "joined", tmp_path / str(call), symlinks=True)

        def work() -> None:
            asyncio.run(machine.join(machine.service.joined, options=options))

        died = dies_at(call, work)
        identity = check_set(machine.state)
        assert identity is not None
        seen.add(identity.folder.name)
        if not died:
            break
    assert seen == {"000001", "000002"}


def test_bootstrap_that_dies_is_done_or_not_begun(tmp_path: Path) -> None:
    """A pin without keys, or keys without a pin, must not look like trust, nor be in the way."""
    reached = 0
    for call in range(1, 200):
        machine = Machine(tmp_path / str(call))
        machine.state = tmp_path / f"{call}-new"

        def work(machine: Machine = machine) -> None:
            asyncio.run(bootstrap(machine.state, machine.wire, pin=machine.service.pin))

        died = dies_at(call, work)
        work()
        asyncio.run(machine.join(machine.service.joined))
        if not died:
            break
        reached = call
    assert reached > 10
