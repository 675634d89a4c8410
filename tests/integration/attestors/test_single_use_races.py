"""What one machine may have is raced for by many, over several workers: one gets it, and everybody is told the truth."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.anchors import SiteAgent
from tests.support.certificates import Held, OperatorCa
from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import Bench, Machine, join_bench, keys
from tests.support.killed_rounds import KILLED, answered_and_killed, certified
from tests.support.proving import approve_all, first_request, last_reason, next_request
from tests.support.racing import KeyMaterial
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.crypto.jws import JwsSigner, verify
from watchword.schemas.ids import TenantId
from watchword.schemas.responses import TYP_RESPONSE

pytestmark = pytest.mark.postgres

WORKERS = 4
CA, THEIRS = OperatorCa(), OperatorCa("their CA")
CONFIG = Config(
    TRUST_DOMAIN,
    (
        Rule((CA.certificate,), {"commonName": "*"}, TenantId("acme"), "web"),
        Rule((THEIRS.certificate,), {"commonName": "*"}, TenantId("globex"), "web"),
    ),
)


@pytest.fixture
async def workers(database: str) -> AsyncGenerator[list[Bench]]:
    """Give four services with the same keys on one database."""
    crypto = keys()
    async with AsyncExitStack() as stack:
        benches = [
            await stack.enter_async_context(
                join_bench(
                    database,
                    attestors=[X509PopAttestor(CONFIG), DiscoveryAttestor()],
                    crypto=crypto,
                    worker=f"w{number}",
                )
            )
            for number in range(WORKERS)
        ]
        await benches[0].place("acme", "web")
        await benches[0].place("globex", "web")
        yield benches


def prover_of(held: Held) -> X509PopProver:
    """Return the prover of whoever holds a certificate."""
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


async def _last_rounds(bench: Bench, holders: list[tuple[Machine, Held]]) -> list[bytes]:
    """Return the requests that would let machines in, unless somebody else is first."""
    provers = [(machine, prover_of(held)) for machine, held in holders]
    challenged = await bench.ask(*[await first_request(m, prover) for m, prover in provers])
    return [
        await next_request(machine, prover, asked)
        for (machine, prover), asked in zip(provers, challenged, strict=True)
    ]


async def _race(workers: list[Bench], requests: list[bytes]) -> list[dict[str, Any]]:
    """Return what was told of each request, all of them asked at once, the workers in turn."""
    asked = [workers[number % WORKERS].ask(request) for number, request in enumerate(requests)]
    return [answer for [answer] in await asyncio.gather(*asked)]


async def test_twenty_machines_with_one_certificate_are_one_node(workers: list[Bench]) -> None:
    """Copies of a key file on twenty machines that boot at once: one joins, nineteen are told apart from it."""
    held, first = CA.give(), workers[0]
    requests = await _last_rounds(first, [(first.machine(), held) for _ in range(20)])
    answers = await _race(workers, requests)

    assert sorted(answer["outcome"] for answer in answers) == ["joined"] + ["refused"] * 19
    assert await first.one("SELECT count(*) FROM nodes") == 1
    assert await first.one("SELECT count(*) FROM node_bindings") == 1
    reasons = await first.fetch("SELECT DISTINCT attestor || ':' || reason FROM refusals")
    assert [row[0] for row in reasons] == ["x509pop:bound-elsewhere"]


async def test_one_machine_that_asks_twenty_times_is_one_node(workers: list[Bench]) -> None:
    """Retries and redeliveries that race are all told the same admission, and there is one of it."""
    held, first = CA.give(), workers[0]
    machine = first.machine()
    requests = await _last_rounds(first, [(machine, held)] * 10)
    answers = await _race(workers, requests + requests)

    assert {answer["outcome"] for answer in answers} == {"joined"}
    assert len({json.dumps(answer["joined"], sort_keys=True) for answer in answers}) == 1
    assert await first.one("SELECT count(*) FROM node_certs") == 1
    assert await first.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1
    assert await first.one("SELECT count(*) FROM refusals") == 0


async def test_one_key_that_two_tenants_certify_is_one_node(workers: list[Bench]) -> None:
    """The tenant that is first has the machine; the other's refusals are in its own stream, and it gets no row."""
    key, first = ec.generate_private_key(ec.SECP256R1()), workers[0]
    ours, theirs = CA.give(key=key), THEIRS.give(key=key)
    holders = [(first.machine(), held) for _ in range(5) for held in (ours, theirs)]
    requests = await _last_rounds(first, holders)
    answers = await _race(workers, requests)

    assert [answer["outcome"] for answer in answers].count("joined") == 1
    winner = await first.one("SELECT tenant FROM nodes")
    counted = await first.fetch("SELECT tenant, count(*) FROM refusals GROUP BY 1")
    assert {row[0]: row[1] for row in counted} == {
        winner: 4,
        "acme" if winner == "globex" else "globex": 5,
    }
    assert await last_reason(first) == "x509pop:bound-elsewhere"


async def test_one_ramdisk_that_two_tenants_see_is_one_node_in_each(workers: list[Bench]) -> None:
    """Names are a tenant's own: neither finds, disturbs or waits for the other's, also at the same time."""
    first = workers[0]
    agents = [
        await SiteAgent(first).registered(),
        await SiteAgent(first, JwsSigner("k2", Ed25519PrivateKey.generate())).registered(
            tenant="globex"
        ),
    ]
    machines = [first.machine() for _ in agents]

    async def requests() -> list[bytes]:
        return [
            machine.request(await agent.asserted(machine), attestor="discovery", role="ramdisk")
            for agent, machine in zip(agents, machines, strict=True)
        ]

    waiting = await _race(workers, await requests())
    await approve_all(first)
    joined = await _race(workers, await requests())

    assert {answer["outcome"] for answer in waiting} == {"deferred"}
    assert {answer["joined"]["tenant"] for answer in joined} == {"acme", "globex"}
    assert await first.one("SELECT count(*) FROM nodes") == 2


async def test_twenty_boots_of_one_ramdisk_leave_one_certificate(workers: list[Bench]) -> None:
    """A known machine that is vouched for under many keys at once is one node; each admission supersedes the one before."""
    first = workers[0]
    agent = await SiteAgent(first).registered()
    await agent.lets_in(first.machine())
    machines = [first.machine() for _ in range(20)]
    requests = [
        m.request(await agent.asserted(m), attestor="discovery", role="ramdisk") for m in machines
    ]
    answers = await _race(workers, requests)

    assert {answer["outcome"] for answer in answers} == {"joined"}
    assert await first.one("SELECT count(*) FROM nodes") == 1
    assert await first.one("SELECT generation FROM nodes") == 21
    assert await first.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 1


async def test_round_that_a_killed_worker_began_is_finished_by_another(database: str) -> None:
    """SIGKILL between the rounds: the machine's answer comes to somebody who has never heard of it, and it joins."""
    material, held = KeyMaterial.fresh(), CA.give()
    signing = material.crypto(), material.seal_to, _public(material), keys()[3]
    authority = CA.certificate.public_bytes(Encoding.DER)
    async with join_bench(database, attestors=[certified(authority)], crypto=signing) as second:
        await second.place("acme", "web")
        machine, prover = second.machine(), prover_of(held)
        request = await first_request(machine, prover)
        answer, ended_by = await answered_and_killed(database, material, authority, request)
        challenged = json.loads(verify(answer, _public(material), typ=TYP_RESPONSE, kid=None))
        [joined] = await second.ask(await next_request(machine, prover, challenged))

        assert ended_by == KILLED
        assert challenged["deferred"]["type"] == "challenge"
        assert joined["outcome"] == "joined"


def _public(material: KeyMaterial) -> bytes:
    key = Ed25519PrivateKey.from_private_bytes(material.signing)
    return key.public_key().public_bytes_raw()
