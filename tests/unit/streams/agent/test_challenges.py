"""What an agent proves: evidence for each round, and nothing that could only be refused."""

from datetime import timedelta

from tests.support.agents import ChallengedProver, Machine
from tests.support.crypto import NOW
from watchword.handlers.prover import NoEvidence
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import Role


async def test_challenge_is_answered_under_its_state(machine: Machine) -> None:
    """The state ties the answer to the challenge; without it nobody could judge the answer."""
    prover = ChallengedProver()
    machine.prover = prover
    await machine.join(
        lambda request: machine.service.challenge(request, b"one"),
        lambda request: machine.service.challenge(request, b"two"),
        machine.service.joined,
    )

    assert prover.asked == [b"one", b"two"]
    payloads = [machine.service.open(request)[2] for request in machine.wire.sent]
    assert payloads[0].startswith(b"evidence for ")
    assert payloads[1:] == [b"answer to one", b"answer to two"]
    states = [request.state for request in machine.sent()]
    assert [state and unb64(state) for state in states] == [
        None,
        b"state of one",
        b"state of two",
    ]


async def test_challenge_for_another_attestor_is_ignored(machine: Machine) -> None:
    """A prover must never be made to sign what another kind of proof would be taken for."""
    prover = ChallengedProver()
    machine.prover = prover
    await machine.join(
        lambda request: machine.service.challenge(request, attestor="x509pop"),
        machine.service.joined,
    )

    assert prover.asked == []
    assert len(set(machine.wire.sent)) == 1


async def test_challenges_without_end_are_not_answered_without_end(machine: Machine) -> None:
    """A broken verifier must not keep a fleet of TPMs busy."""
    prover = ChallengedProver()
    machine.prover = prover
    await machine.join(*[machine.service.challenge] * 9, machine.service.joined)

    assert len(prover.asked) == 8
    assert machine.sent()[-1].state is None
    assert machine.time.slept


async def test_prover_that_cannot_answer_begins_anew(machine: Machine) -> None:
    """A busy TPM is no reason to give up, and nothing is sent that is no answer."""
    await machine.join(machine.service.challenge, machine.service.joined)

    assert [request.state for request in machine.sent()] == [None, None]
    assert machine.progress[-2].step == "no-evidence"


async def test_nothing_is_sent_while_there_is_no_evidence(machine: Machine) -> None:
    """A metadata service that does not answer yet is a local matter; refusals are for those who ask."""
    away = 3

    class Late(ChallengedProver):
        async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
            nonlocal away
            if away:
                away -= 1
                assert machine.wire.sent == []
                message = "the metadata service does not answer"
                raise NoEvidence(message)
            return await super().evidence(csr_sha256, role)

    machine.prover = Late()
    await machine.join(machine.service.joined)

    assert [step.step for step in machine.progress][:3] == ["no-evidence"] * 3
    assert machine.progress[0].why == "the metadata service does not answer"
    assert machine.time.slept == sorted(machine.time.slept)
    assert len(machine.wire.sent) == 1


async def test_key_that_left_the_key_set_gives_a_fresh_round(machine: Machine) -> None:
    """A request that nobody can open any more could only be refused, and look like an attack."""

    def rotated(_: bytes) -> None:
        key = machine.service.held_key("e-2", NOW, NOW + timedelta(days=60))
        machine.service.held = [key]
        machine.service.version = 2
        machine.time.pass_by(400)

    await machine.join(rotated, machine.service.joined)

    first, second = machine.sent()
    assert (first.encryption_key_id, second.encryption_key_id) == ("e-1", "e-2")
    assert first.csr == second.csr


async def test_challenge_that_has_run_out_gives_a_fresh_round(machine: Machine) -> None:
    """An answer to a dead challenge could only be refused."""
    machine.prover = ChallengedProver()

    def forget(_: bytes) -> None:
        machine.time.pass_by(600)

    await machine.join(machine.service.challenge, forget, machine.service.joined)

    assert [request.state is None for request in machine.sent()] == [True, False, True]
