"""The rounds of a join, over a transport in memory and with real crypto."""

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.agents import ChallengedProver, Machine, Service, Wire, modes, token_prover
from tests.support.crypto import NODE_ID
from watchword.schemas.canonical import unb64
from watchword.schemas.requests import Claims
from watchword.streams.agent.errors import NotBootstrapped, StateBusy, TransportUnavailable
from watchword.streams.agent.exchange import KeyKind
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.agent.keystore import Keystore


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
