"""The rounds of a join, over a transport in memory and with real crypto."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.support.agents import (
    ChallengedProver,
    Machine,
    Reaction,
    Service,
    Wire,
    bootstrapped,
    modes,
    token_prover,
)
from tests.support.crypto import NODE_ID, NOW
from watchword.handlers.prover import NoEvidence
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims
from watchword.streams.agent.errors import (
    AnswerNotUsable,
    JoinRefused,
    NotBootstrapped,
    RequestNotUsable,
    StateBusy,
    TransportUnavailable,
)
from watchword.streams.agent.exchange import KeyKind
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.agent.keystore import Keystore


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state")


@pytest.mark.parametrize("kind", ["p256", "p384", "ed25519"])
async def test_machine_joins_and_has_a_set_of_files_that_fit(
    machine: Machine, kind: KeyKind
) -> None:
    """The one thing that it is all for."""
    result = await machine.join(
        machine.service.joined, options=JoinOptions(key_kind=kind, claims=Claims)
    )

    current = machine.state / "current"
    key = load_pem_private_key((current / "key.pem").read_bytes(), None)
    chain = x509.load_pem_x509_certificates((current / "chain.pem").read_bytes())
    bundle = x509.load_pem_x509_certificates((current / "bundle.pem").read_bytes())
    assert chain[0].public_key() == key.public_key()
    assert (current / "cert.pem").read_bytes() in (current / "chain.pem").read_bytes()
    chain[0].verify_directly_issued_by(bundle[0])
    assert result.identity.node.node_id == NODE_ID
    assert not result.was_joined
    assert machine.keystore.exchange() is None


async def test_what_is_sent_is_sealed_with_evidence_and_claims(machine: Machine) -> None:
    """What the worker opens is what the prover and the claims said, and nothing of it is in clear."""
    claims = Claims(serial="S-1", macs=("02:00:00:00:00:01",))
    await machine.join(machine.service.joined, options=JoinOptions(claims=lambda: claims))

    request, csr, payload, seen = machine.service.open(machine.wire.sent[0])
    assert payload == await machine.prover.evidence(csr.sha256, "node")
    assert seen == claims
    assert request.state is None
    assert request.reply_key is None
    assert b"S-1" not in machine.wire.sent[0]
    assert payload[-32:] not in unb64(request.sealed)


async def test_everything_below_the_state_directory_is_the_owners_alone(machine: Machine) -> None:
    """The key of a machine is readable for its agent, and for nobody beside root."""
    seen: dict[Path, int] = {}

    def look(request: bytes) -> bytes:
        seen.update(modes(machine.state))
        return machine.service.joined(request)

    await machine.join(look)
    seen.update(modes(machine.state))

    assert {mode for path, mode in seen.items() if path.is_dir()} == {0o700}
    names = {path.name for path in seen}
    assert {"key.pem", "round.json", "node.json", "pin", "lock"} <= names
    assert {mode for mode in seen.values() if mode != 0o700} == {0o600}


async def test_request_is_on_the_disk_before_it_is_sent(machine: Machine) -> None:
    """A machine that dies after sending must be able to say the same thing again."""
    on_disk: list[bytes] = []

    def look(request: bytes) -> bytes:
        exchange = machine.keystore.exchange()
        assert exchange is not None
        current = exchange.round()
        assert current is not None
        on_disk.append(current.request_bytes())
        return machine.service.joined(request)

    await machine.join(look)

    assert on_disk == machine.wire.sent


async def test_round_without_an_answer_is_sent_again_byte_for_byte(machine: Machine) -> None:
    """Other bytes would be another request, and could be judged a second time."""
    await machine.join(lambda _: None, lambda _: None, machine.service.joined)

    assert len(machine.wire.sent) == 3
    assert len(set(machine.wire.sent)) == 1


async def test_lost_service_is_waited_for_with_growing_pauses(machine: Machine) -> None:
    """An outage of an hour must not end a join, nor be hammered on."""

    def away(_: bytes) -> None:
        raise TransportUnavailable

    await machine.join(*[away] * 12, machine.service.joined)

    assert len(set(machine.wire.sent)) == 1
    assert machine.time.slept == sorted(machine.time.slept)
    assert machine.time.slept[-1] <= 300
    assert [step.step for step in machine.progress].count("unreachable") == 12


async def test_wait_that_the_service_asks_for_is_never_shortened(machine: Machine) -> None:
    """A gateway that sheds load names the time it needs."""

    def busy(_: bytes) -> None:
        raise TransportUnavailable(retry_after_s=40)

    await machine.join(busy, machine.service.joined)

    assert machine.time.slept[0] >= 40


async def test_approval_is_waited_for_and_asked_anew(machine: Machine) -> None:
    """After an approval deferral come fresh evidence and no state, under the same key and CSR."""
    await machine.join(machine.service.approval, machine.service.approval, machine.service.joined)

    requests = machine.sent()
    assert len({request.request_id for request in requests}) == 3
    assert len({request.sealed for request in requests}) == 3
    assert len({request.csr for request in requests}) == 1
    assert {request.state for request in requests} == {None}
    waits = [step.wait_s for step in machine.progress if step.step == "approval"]
    assert [wait for wait in waits if wait is not None and 30 <= wait <= 37.5] == waits
    csr_sha256 = sha256(unb64(requests[0].csr)).hexdigest()
    assert {step.csr_sha256 for step in machine.progress} == {csr_sha256}


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


async def test_refusal_ends_the_exchange(machine: Machine) -> None:
    """A refused CSR may never be admitted again; the next attempt needs a new key."""
    with pytest.raises(JoinRefused, match=r"^Join refused$") as raised:
        await machine.join(machine.service.refused)
    assert raised.value.exit_code == 5
    assert machine.keystore.exchange() is None

    await machine.join(machine.service.joined)

    first, second = machine.sent()
    assert first.csr != second.csr


async def test_unavailable_service_is_asked_again_in_a_new_round(machine: Machine) -> None:
    """UNAVAILABLE is no judgement: it leaves nothing behind that would answer the same bytes."""
    await machine.join(
        *[lambda request: machine.service.failed(request, "UNAVAILABLE")] * 3,
        machine.service.joined,
    )

    assert len({request.request_id for request in machine.sent()}) == 4
    assert len({request.csr for request in machine.sent()}) == 1
    assert machine.time.slept == sorted(machine.time.slept)


@pytest.mark.parametrize("code", ["INVALID_INPUT", "UNSUPPORTED"])
async def test_request_that_nobody_can_use_stops_the_agent(machine: Machine, code: str) -> None:
    """Asking the same again for ever would be noise; the person at the machine is told what is wrong."""
    with pytest.raises(RequestNotUsable, match="the service") as raised:
        await machine.join(lambda request: machine.service.failed(request, code))  # type: ignore[arg-type] # one of the two

    assert raised.value.exit_code == 1


async def test_answers_that_are_not_ours_are_ignored(machine: Machine) -> None:
    """A relay can bring anything: forged, for another machine, or for what we said before."""
    stranger = Service()
    other = Machine(machine.state.parent / "other")
    other.service = other.wire.service = machine.service
    bootstrapped(other.state, machine.service)
    await other.join(machine.service.joined)
    theirs = other.wire.sent[0]

    def forged(request: bytes) -> list[bytes]:
        return [
            b"",
            b"not a token",
            stranger.refused(request),
            stranger.failed(request, "INVALID_INPUT"),
            machine.service.joined(theirs),
            machine.service.refused(theirs),
            machine.service.refused(request)[:-1] + b"A",
            machine.service.key_set(),
        ]

    def approve_then_listen(request: bytes) -> bytes:
        # What answers the first round is no answer to the second.
        machine.wire.extra[2] = [machine.service.refused(request), *forged(request)]
        return machine.service.approval(request)

    machine.wire.extra[1] = [machine.service.refused(theirs)]
    await machine.join(approve_then_listen, machine.service.joined)

    assert len(machine.wire.sent) == 2


async def test_answer_that_names_no_csr_counts_only_for_a_failure(machine: Machine) -> None:
    """A worker that could not read the request that far must still be able to say so."""
    answers = machine.service.answers

    def without_csr(request: bytes, outcome: str) -> bytes:
        question = machine.service.question(request)
        unread = type(question)(question.request_sha256)
        if outcome == "refused":
            return answers.refused(unread, NOW)
        return answers.failed(unread, NOW, "INVALID_INPUT")

    def refuse_first(request: bytes) -> bytes:
        machine.wire.extra[2] = [without_csr(request, "refused")]
        return without_csr(request, "refused")

    with pytest.raises(RequestNotUsable):
        await machine.join(refuse_first, lambda request: without_csr(request, "failed"))

    assert len(set(machine.wire.sent)) == 1


async def test_shared_topic_gets_a_reply_key_of_its_own_each_round(machine: Machine) -> None:
    """On a topic that every agent reads, an answer in clear tells all of them who joins."""
    machine.wire.answers_are_shared = True
    tokens: list[bytes] = []

    def answer(make: Reaction) -> Reaction:
        def made(request: bytes) -> bytes | None:
            token = make(request)
            tokens.append(token or b"")
            return token

        return made

    await machine.join(answer(machine.service.approval), answer(machine.service.joined))

    keys = [request.reply_key for request in machine.sent()]
    assert None not in keys
    assert len(set(keys)) == 2
    assert NODE_ID not in tokens[1].decode()


async def test_certificate_that_is_not_ours_is_not_installed(machine: Machine) -> None:
    """Files that do not fit are worse than none: services would start, and fail at their peers."""

    def stranger_key(request: bytes) -> bytes:
        other = Service()
        return machine.service.joined(
            request, chain=(other.authority.chain[0], *machine.service.authority.chain)
        )

    with pytest.raises(AnswerNotUsable, match="another key"):
        await machine.join(stranger_key)

    assert machine.keystore.identity() is None
    assert machine.keystore.exchange() is not None


async def test_authority_that_is_new_is_fetched_before_it_is_doubted(machine: Machine) -> None:
    """A CA may be rotated while a machine waits for its answer."""

    def rotated(request: bytes) -> bytes:
        machine.service.authority = Service().authority
        machine.service.version = 2
        return machine.service.joined(request)

    result = await machine.join(rotated)

    bundle = x509.load_pem_x509_certificates((result.identity.folder / "bundle.pem").read_bytes())
    assert [c.public_bytes(Encoding.DER) for c in bundle] == list(machine.service.authority.chain)


async def test_joined_machine_asks_nobody(machine: Machine) -> None:
    """Running the command twice is what every provisioning tool does."""
    first = await machine.join(machine.service.joined)
    second = await machine.join()

    assert second.was_joined
    assert second.identity == first.identity


async def test_machine_can_join_again_when_told(machine: Machine) -> None:
    """An evicted node must attest again, under a new key."""
    await machine.join(machine.service.joined)
    result = await machine.join(
        machine.service.joined, options=JoinOptions(claims=Claims, again=True)
    )

    assert not result.was_joined
    first, second = machine.sent()
    assert first.csr != second.csr
    assert result.identity.folder.name == "000002"


async def test_agent_without_a_pin_does_nothing(tmp_path: Path) -> None:
    """A key set from the network is worth nothing without a pin to judge it by."""
    wire = Wire(Service())
    with pytest.raises(NotBootstrapped):
        await join(tmp_path / "state", wire, token_prover())

    assert wire.sent == []


async def test_two_agents_do_not_share_a_state_directory(machine: Machine) -> None:
    """Two of them would answer each other's rounds and overwrite each other's keys."""
    with machine.keystore.locked(), pytest.raises(StateBusy) as raised:
        await machine.join()

    assert raised.value.exit_code == 4


@pytest.mark.parametrize("year", [1970, 2020, 2099])
async def test_machine_with_a_wrong_clock_joins(machine: Machine, year: int) -> None:
    """Boards without a clock battery boot in 1970, and must get in to learn the time."""
    machine.time.wall_s = datetime(year, 1, 1, tzinfo=UTC).timestamp()
    machine.prover = ChallengedProver()
    result = await machine.join(
        machine.service.challenge, machine.service.approval, machine.service.joined
    )

    assert result.identity.node.node_id == NODE_ID


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


async def test_nothing_secret_is_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs of machines end up everywhere."""
    token = await machine.prover.evidence(bytes(32), "node")
    secret = token[-32:]

    def look(request: bytes) -> bytes:
        exchange = machine.keystore.exchange()
        assert exchange is not None
        assert "PRIVATE" not in repr(exchange)
        assert "reply_key" not in repr(exchange.round())
        for path in machine.state.rglob("*"):
            if path.is_file():
                assert secret not in path.read_bytes()
        return machine.service.joined(request)

    machine.wire.answers_are_shared = True
    await machine.join(machine.service.approval, look)

    said = "".join(capsys.readouterr()) + "".join(map(repr, machine.progress))
    assert secret.hex() not in said
    assert "PRIVATE" not in said
    assert Keystore(machine.state).identity() is not None
