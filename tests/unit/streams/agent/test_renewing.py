"""An agent renews in time, with one key, through whatever ends its process."""

import asyncio
import shutil
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.agents import Crash, Machine, Reaction
from tests.support.crypto import NOW
from tests.support.dying import check_set, dies_at
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.crypto.renewals import RenewalEvidence, holds, signed_text
from watchword.streams.agent.errors import AnswerNotUsable
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.renewer import Renewer
from watchword.streams.agent.trust import TrustKeeper

DUE_S = 16 * 3600 + 4 * 3600
"""The test's certificates live a day and are due after 16 hours; a quarter of the rest is spread, none of it used up."""


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "state")
    await machine.join(machine.service.joined)
    machine.wire.sent.clear()
    machine.time.pass_by(DUE_S)
    machine.service.now += timedelta(seconds=DUE_S)
    return machine


def renewer(machine: Machine) -> Renewer:
    trust = TrustKeeper(machine.keystore, machine.wire, pace=machine.time.pace)
    return Renewer(
        machine.keystore,
        machine.wire,
        trust,
        key_kind="p256",
        reporter=Reporter(),
        pace=machine.time.pace,
    )


async def tend(machine: Machine, *reactions: Reaction) -> Identity | None:
    """Renew, or go on, against a service that reacts like this, as a process that has just started."""
    machine.wire.then(*reactions)
    with machine.keystore.locked():
        return await renewer(machine).tend()


def crash(_: bytes) -> None:
    raise Crash


async def test_renewal_is_a_new_key_signed_for_by_the_old_one(machine: Machine) -> None:
    """Whoever cannot sign with the certificate's key must not get what follows it."""
    before = machine.keystore.identity()
    assert before is not None
    old = x509.load_pem_x509_certificate(before.certificate.read_bytes())
    after = await tend(machine, machine.service.joined)

    assert after is not None
    assert check_set(machine.state) == after
    new = x509.load_pem_x509_certificate(after.certificate.read_bytes())
    assert new.public_key() != old.public_key()
    [request] = machine.wire.sent
    read, csr, payload, _ = machine.service.open(request)
    assert (read.kind, read.attestor, read.role) == ("renew", "renew", "node")
    shown = RenewalEvidence.decode(payload)
    assert shown.tbs_sha256 == sha256(old.tbs_certificate_bytes).digest()
    text = signed_text(shown.tbs_sha256, csr.sha256, read.request_id)
    assert load_public_key(shown.spki_der) == old.public_key()
    assert holds(load_public_key(shown.spki_der), shown.signature, text)
    assert machine.keystore.renewal() is None


async def test_key_and_request_are_on_the_disk_before_anything_is_sent(machine: Machine) -> None:
    """A machine that dies with its request in flight has to come back with the same key."""
    found: list[list[str]] = []

    def look(request: bytes) -> bytes:
        exchange = machine.keystore.renewal()
        assert exchange is not None
        current = exchange.round()
        assert current is not None
        found.append(sorted(path.name for path in exchange.folder.iterdir()))
        assert current.request_bytes() == request
        return machine.service.joined(request)

    await tend(machine, look)
    assert found == [["csr.der", "follows", "key.pem", "round.json"]]


@pytest.mark.parametrize(
    ("draw", "due_after"),
    [(0.0, timedelta(hours=16)), (0.5, timedelta(hours=17)), (1.0, timedelta(hours=18))],
)
async def test_renewal_is_due_after_two_thirds_and_spread_over_a_quarter_of_the_rest(
    tmp_path: Path, draw: float, due_after: timedelta
) -> None:
    """Ten thousand machines that joined together must not come back together."""
    machine = Machine(tmp_path / "state")
    await machine.join(machine.service.joined)
    object.__setattr__(machine.time.pace, "draw", lambda: draw)
    once = renewer(machine)

    machine.time.wall_s = (NOW + due_after - timedelta(seconds=1)).timestamp()
    assert await once.tend() is None
    machine.time.wall_s = (NOW + due_after + timedelta(seconds=1)).timestamp()
    machine.wire.then(machine.service.joined)
    assert await once.tend() is not None


async def test_expired_certificate_begins_no_renewal(machine: Machine) -> None:
    """It could only be refused; a machine that was off for weeks has to attest again."""
    machine.time.pass_by(86_400)
    assert await tend(machine) is None


async def test_renewal_under_way_goes_on_after_the_certificate_has_expired(
    machine: Machine,
) -> None:
    """It may have happened: then the machine's new certificate waits for it."""
    with pytest.raises(Crash):
        await tend(machine, crash)
    machine.time.pass_by(86_400)
    assert await tend(machine, machine.service.joined) is not None


async def test_lost_answer_is_asked_for_with_the_same_bytes(machine: Machine) -> None:
    """A second key from one certificate would look like a theft, and cost the node its place."""
    with pytest.raises(Crash):
        await tend(machine, crash)
    await tend(machine, machine.service.joined)

    assert machine.wire.sent[0] == machine.wire.sent[1]


async def test_new_request_after_trouble_is_for_the_same_key(machine: Machine) -> None:
    """The same, where the bytes cannot be sent again: unavailable, refused, another round."""
    failed: Callable[[bytes], bytes] = lambda request: machine.service.failed(  # noqa: E731
        request, "UNAVAILABLE"
    )
    assert await tend(machine, failed, failed, machine.service.refused) is None
    assert await tend(machine, machine.service.joined) is not None

    requests = machine.sent()
    assert len({request.request_id for request in requests}) == len(requests) == 4
    assert len({request.csr for request in requests}) == 1


async def test_refused_renewal_is_asked_for_again_much_later(machine: Machine) -> None:
    """Each refusal is an event that somebody reads; but the operator may have meant another node."""
    once = renewer(machine)
    machine.wire.then(machine.service.refused, machine.service.joined)
    assert await once.tend() is None
    machine.time.pass_by(3000)
    assert await once.tend() is None
    assert len(machine.wire.sent) == 1
    machine.time.pass_by(3600)
    assert await once.tend() is not None


async def test_certificate_of_another_node_is_not_installed(machine: Machine) -> None:
    """The agent's services know who they are; an answer for somebody else is a bug, and no news."""
    before = machine.keystore.identity()

    def other(request: bytes) -> bytes:
        _, csr, _, _ = machine.service.open(request)
        node = "0190163d-8694-739b-aea5-000000000000"
        return machine.service.answers.joined(
            machine.service.question(request),
            machine.service.now,
            node_id=node,
            tenant="acme",
            pool="default",
            site=None,
            role="node",
            chain=(
                machine.service.certificate(csr, node_id=node),
                *machine.service.authority.chain,
            ),
            allowed_kinds=None,
            renew_after=machine.service.now,
        )

    with pytest.raises(AnswerNotUsable):
        await tend(machine, other)
    assert machine.keystore.identity() == before


async def test_renewal_of_an_identity_that_was_replaced_is_forgotten(machine: Machine) -> None:
    """After a join anew its signature is by a key that nobody knows any more."""
    with pytest.raises(Crash):
        await tend(machine, crash)
    stale = shutil.copytree(machine.state / "renewal", machine.state.parent / "stale")
    await tend(machine, machine.service.joined)
    shutil.copytree(stale, machine.state / "renewal")
    sent = len(machine.wire.sent)

    assert await tend(machine) is None
    assert machine.keystore.renewal() is None
    assert len(machine.wire.sent) == sent


def test_machine_that_dies_at_any_write_renews_when_it_comes_back(tmp_path: Path) -> None:
    """At each step between the key and the new files: one set that fits, one key asked for, one renewal in the end."""
    prepared = Machine(tmp_path / "joined")
    asyncio.run(prepared.join(prepared.service.joined))
    prepared.time.pass_by(DUE_S)
    prepared.service.now += timedelta(seconds=DUE_S)
    seen: set[str] = set()
    for call in range(1, 500):
        state = shutil.copytree(tmp_path / "joined", tmp_path / str(call), symlinks=True)
        machine = Machine.__new__(Machine)
        machine.__dict__.update(prepared.__dict__)
        machine.state, machine.keystore = state, type(prepared.keystore)(state)
        machine.wire.reactions.clear()
        sent = tmp_path / f"{call}.sent"

        def joined(request: bytes, sent: Path = sent) -> bytes:
            with sent.open("ab", buffering=0) as log:
                log.write(sha256(prepared.service.open(request)[1].der).digest())
            return prepared.service.joined(request)

        def work(
            machine: Machine = machine, joined: Callable[[bytes], bytes] = joined
        ) -> Identity | None:
            return asyncio.run(tend(machine, joined))

        died = dies_at(call, work)
        identity = check_set(state)
        assert identity is not None
        seen.add(identity.folder.name)
        machine.wire.reactions.clear()
        work()

        found = check_set(state)
        assert found is not None
        assert found.folder.name == "000002"
        assert machine.keystore.renewal() is None
        asked = sent.read_bytes()
        assert len({asked[at : at + 32] for at in range(0, len(asked), 32)}) == 1
        if not died:
            break
    assert seen == {"000001", "000002"}
