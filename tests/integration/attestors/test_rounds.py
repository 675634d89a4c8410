"""Rounds: any worker finishes them, nothing of them can be moved, and each prover is judged by its verifier."""

from base64 import b64decode
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256

import pytest

from tests.support.anchors import SiteAgent, image
from tests.support.certificates import Held, OperatorCa
from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import Bench, Machine, join_bench, keys
from tests.support.proving import (
    approve_all,
    csr_sha256,
    first_request,
    join,
    last_reason,
    next_request,
    state_of,
)
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.crypto.state import StateSealer
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

CA = OperatorCa()
CONFIG = Config(
    TRUST_DOMAIN,
    (Rule((CA.certificate,), {"commonName": "*"}, TenantId("acme"), "web", reattest=True),),
)


class Second(X509PopAttestor):
    """The same verifier under another id, with reasons of its own."""

    id = "second"
    reasons = tuple(
        replace(reason, code=f"WX1{reason.code[3:]}") for reason in X509PopAttestor.reasons
    )


def prover_of(held: Held) -> X509PopProver:
    """Return the prover of whoever holds a certificate."""
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service with two attestors that challenge."""
    async with join_bench(database, attestors=[X509PopAttestor(CONFIG), Second(CONFIG)]) as bench:
        await bench.place("acme", "web")
        yield bench


async def test_each_prover_is_judged_by_its_verifier(database: str) -> None:
    """Both halves were written by one hand, and meet here without any made by another."""
    attestors = [X509PopAttestor(CONFIG), ImageAttestor(), DiscoveryAttestor()]
    async with join_bench(database, attestors=attestors) as bench:
        await bench.place("acme", "web", "berlin")
        agent = await SiteAgent(bench).registered()
        made = await image(bench)
        certified, imaged, ramdisk = bench.machine(), bench.machine(), bench.machine()
        assertions = [await agent.asserted(ramdisk), await agent.asserted(ramdisk)]
        discovered = DiscoveryProver(lambda _csr: assertions.pop())

        first = await join(bench, certified, prover_of(CA.give()))
        for machine, prover, role in (
            (imaged, made.prover, "node"),
            (ramdisk, discovered, "ramdisk"),
        ):
            waits = await join(bench, machine, prover, role=role)  # type: ignore[arg-type]  # roles
            assert waits["deferred"]["type"] == "approval"
        await approve_all(bench)
        second = await join(bench, imaged, made.prover)
        third = await join(bench, ramdisk, discovered, role="ramdisk")

        assert [a["outcome"] for a in (first, second, third)] == ["joined"] * 3
        rows = await bench.fetch("SELECT attestor, role FROM nodes ORDER BY attestor")
        assert [tuple(row) for row in rows] == [
            ("discovery", "ramdisk"),
            ("image", "node"),
            ("x509pop", "node"),
        ]
        assert await bench.one("SELECT count(*) FROM refusals") == 0


async def test_another_worker_finishes_what_one_began(database: str) -> None:
    """The first is gone when the answer comes; it had kept nothing that the second would need."""
    crypto = keys()
    held = CA.give()
    async with join_bench(database, attestors=[X509PopAttestor(CONFIG)], crypto=crypto) as first:
        await first.place("acme", "web")
        machine = first.machine()
        [challenged] = await first.ask(await first_request(machine, prover_of(held)))
    answering = await next_request(machine, prover_of(held), challenged)
    async with join_bench(
        database, attestors=[X509PopAttestor(CONFIG)], crypto=crypto, worker="w1"
    ) as second:
        [answer] = await second.ask(answering)

        assert answer["outcome"] == "joined"
        assert await second.one("SELECT count(*) FROM nodes") == 1


async def test_two_workers_that_get_the_answer_both_admit_once(database: str) -> None:
    """A redelivery to another worker is the same join, whoever is first."""
    crypto = keys()
    attestors = [X509PopAttestor(CONFIG)]
    async with (
        join_bench(database, attestors=attestors, crypto=crypto) as first,
        join_bench(database, attestors=attestors, crypto=crypto, worker="w1") as second,
    ):
        await first.place("acme", "web")
        machine, prover = first.machine(), prover_of(CA.give())
        [challenged] = await first.ask(await first_request(machine, prover))
        answering = await next_request(machine, prover, challenged)
        [one] = await first.ask(answering)
        [other] = await second.ask(answering)

        assert one["joined"] == other["joined"]
        assert await first.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1


async def test_challenge_is_answered_once(bench: Bench) -> None:
    """A second answer to it, in other bytes, gets the first one's admission and has no effect of its own."""
    machine, prover = bench.machine(), prover_of(CA.give())
    [challenged] = await bench.ask(await first_request(machine, prover))
    [first] = await bench.ask(await next_request(machine, prover, challenged))
    [second] = await bench.ask(await next_request(machine, prover, challenged))

    assert first["joined"] == second["joined"]
    assert await bench.one("SELECT generation FROM nodes") == 1
    assert await bench.one("SELECT count(*) FROM node_certs") == 1
    await bench.run("UPDATE nodes SET state = 'evicted'")
    [third] = await bench.ask(await next_request(machine, prover, challenged))
    assert third["outcome"] == "refused"
    assert await last_reason(bench) == "join:csr-reused"


async def test_challenge_is_answered_under_its_attestor_alone(bench: Bench) -> None:
    """Also another attestor that would take the same bytes does not take the other's state."""
    machine, prover = bench.machine(), prover_of(CA.give())
    [challenged] = await bench.ask(await first_request(machine, prover))
    payload = await _answer(machine, prover, challenged["deferred"]["challenge"])
    request = machine.request(payload, attestor="second", state=state_of(challenged))
    [answer] = await bench.ask(request)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "second:challenge"


async def _answer(machine: Machine, prover: X509PopProver, challenge: str) -> bytes:
    return await prover.answer(b64decode(challenge), csr_sha256(machine), "node")


@dataclass(frozen=True)
class Forgery:
    """A way in which a state can be other than the one that was handed out."""

    name: str

    async def made(self, bench: Bench, machine: Machine, held: Held, state: bytes) -> bytes:
        """Return the state."""
        match self.name:
            case "another deployment's":
                now = await bench.one("SELECT watchword.now()")
                nonce = bytes(32)
                tbs = sha256(held.certificate.tbs_certificate_bytes).digest()
                return StateSealer({"c1": b"d" * 32}, "c1").seal(
                    nonce + tbs,
                    attestor="x509pop",
                    attestor_version="1",
                    role="node",
                    csr_sha256=csr_sha256(machine),
                    expires_at=now + timedelta(minutes=1),
                    now=now,
                )
            case "cut":
                return state[:-1]
            case "one bit":
                return state[:-1] + bytes((state[-1] ^ 1,))
            case "a later expiry":
                at = 2 + state[1]
                later = int.from_bytes(state[at : at + 6], "big") + 60_000
                return state[:at] + later.to_bytes(6, "big") + state[at + 6 :]
            case _:
                return b"state"


@pytest.mark.parametrize(
    "forgery", ["another deployment's", "cut", "one bit", "a later expiry", "junk"]
)
async def test_state_is_the_one_that_was_handed_out(bench: Bench, forgery: str) -> None:
    """Whatever was changed in it, or whoever else made it: refused, with a signature that is right."""
    machine, held = bench.machine(), CA.give()
    [challenged] = await bench.ask(await first_request(machine, prover_of(held)))
    payload = await _answer(machine, prover_of(held), challenged["deferred"]["challenge"])
    state = await Forgery(forgery).made(bench, machine, held, state_of(challenged))
    [answer] = await bench.ask(machine.request(payload, attestor="x509pop", state=state))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:challenge"
    assert await bench.one("SELECT count(*) FROM nodes") == 0


@pytest.mark.case("B47")
async def test_challenges_differ_and_a_recorded_answer_is_good_for_none_but_its_own(
    bench: Bench,
) -> None:
    """256 random bits each time: the answer to one challenge does not answer another."""
    machine, prover = bench.machine(), prover_of(CA.give())
    requests = [await first_request(machine, prover) for _ in range(50)]
    challenged = await bench.ask(*requests)
    challenges = {b64decode(c["deferred"]["challenge"]) for c in challenged}
    recorded = await _answer(machine, prover, challenged[0]["deferred"]["challenge"])
    [replayed] = await bench.ask(
        machine.request(recorded, attestor="x509pop", state=state_of(challenged[1]))
    )

    assert len(challenges) == 50
    assert {len(challenge) for challenge in challenges} == {32}
    assert replayed["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:signature"
