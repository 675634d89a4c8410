"""Which answers count, and what an agent does about each of them."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.agents import Machine, Reaction, Service, bootstrapped
from tests.support.crypto import NODE_ID, NOW
from watchword.streams.agent.errors import AnswerNotUsable, JoinRefused, RequestNotUsable


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
