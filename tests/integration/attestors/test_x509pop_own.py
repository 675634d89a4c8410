"""x509pop with certificates of our own: a machine that was off for too long comes back as itself, or not at all."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from hashlib import sha256

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import OperatorCa, pem_of_key
from tests.support.crypto import TRUST_DOMAIN, NodeKey, csr_of, rsa_key
from tests.support.joins import Bench, Machine, certificate_of, join_bench
from tests.support.proving import (
    ban,
    first_request,
    join,
    last_reason,
    move_clock,
    next_request,
)
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

GRACE = timedelta(days=10)
WEEK = timedelta(days=7)


@pytest.fixture(scope="module")
def authority() -> OperatorCa:
    """Give the CA that rules lead from."""
    return OperatorCa()


@pytest.fixture
def rule(authority: OperatorCa) -> Rule:
    """Give the rule for web servers."""
    return Rule(
        authorities=(authority.certificate,),
        match={"commonName": "*.web.fleet.example"},
        tenant=TenantId("acme"),
        pool="web",
        allowed_kinds=("diag.*",),
    )


@pytest.fixture
async def bench(database: str, rule: Rule) -> AsyncGenerator[Bench]:
    """Give a service with that rule, and with the grace for its own certificates."""
    async with join_bench(database, attestors=[attestor(rule)]) as bench:
        await bench.place("acme", "web")
        yield bench


def attestor(*rules: Rule) -> X509PopAttestor:
    """Return the attestor with these rules."""
    return X509PopAttestor(Config(TRUST_DOMAIN, rules, GRACE))


class OwnNode:
    """A node that joined by a token, and the prover that holds its certificate and key."""

    def __init__(self, machine: Machine, answer: dict[str, dict[str, str]]) -> None:
        """Take what a join gave."""
        self.id = answer["joined"]["nodeId"]
        certificate = x509.load_der_x509_certificate(certificate_of(answer))
        self.certificate = certificate
        pem = certificate.public_bytes(Encoding.PEM)
        self.prover = X509PopProver(
            lambda: pem, FileKey(lambda: pem_of_key(machine.key)), TRUST_DOMAIN
        )


async def _node(bench: Bench, key: NodeKey | None = None) -> OwnNode:
    machine = bench.machine()
    if key is not None:
        machine.key, machine.csr = key, csr_of(key)
    token = await bench.token()
    [answer] = await bench.ask(machine.request(token.payload))
    return OwnNode(machine, answer)


@pytest.mark.parametrize(
    "key",
    [ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate(), rsa_key()],
    ids=["p256", "ed25519", "rsa"],
)
async def test_expired_certificate_of_ours_rekeys_its_node(bench: Bench, key: NodeKey) -> None:
    """A machine that was off for too long comes back as itself, with a new key; the old certificate is revoked."""
    node = await _node(bench, key)
    await move_clock(bench, WEEK + timedelta(hours=1))
    answer = await join(bench, bench.machine(), node.prover)

    assert answer["outcome"] == "joined"
    assert answer["joined"]["nodeId"] == node.id
    rows = await bench.fetch(
        "SELECT is_current, revoked_at IS NOT NULL FROM node_certs ORDER BY issued_at"
    )
    assert [tuple(row) for row in rows] == [(False, True), (True, False)]
    assert await bench.one("SELECT generation FROM nodes") == 2


async def test_kinds_and_place_of_our_certificate_are_carried_on(bench: Bench) -> None:
    """Coming back widens nothing: pool, role and kinds are the node's, whatever rules say today."""
    token = await bench.token(pool="db", allowed_kinds=["logs.collect"])
    machine = bench.machine()
    [first] = await bench.ask(machine.request(token.payload))
    node = OwnNode(machine, first)
    await move_clock(bench, WEEK + timedelta(hours=1))
    answer = await join(bench, bench.machine(), node.prover)

    assert answer["joined"]["allowedKinds"] == ["logs.collect"]
    assert answer["joined"]["pool"] == "db"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (timedelta(days=1), "use-renewal"),
        (WEEK + GRACE + timedelta(hours=1), "expired"),
    ],
)
async def test_certificate_of_ours_counts_only_within_the_grace(
    bench: Bench, after: timedelta, reason: str
) -> None:
    """Before its end there is renewal, which also finds thieves; after the grace nothing is left."""
    node = await _node(bench)
    await move_clock(bench, after)
    answer = await join(bench, bench.machine(), node.prover)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == f"x509pop:{reason}"


@pytest.mark.case("B74")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE node_certs SET revoked_at = now(), revoked_why = 'test'", "superseded"),
        ("UPDATE node_certs SET is_current = false", "superseded"),
        ("UPDATE nodes SET state = 'evicted'", "node-state"),
        ("UPDATE nodes SET state = 'banned'", "node-state"),
        ("UPDATE nodes SET state = 'retired'", "node-state"),
        ("UPDATE nodes SET state = 'deleted'", "node-state"),
    ],
    ids=["revoked", "superseded", "evicted", "banned", "retired", "deleted"],
)
async def test_certificate_of_ours_counts_only_while_its_node_lives(
    bench: Bench, change: str, reason: str
) -> None:
    """Evicted must attest again by other means, banned and retired may not at all: no way round by an old certificate."""
    node = await _node(bench)
    await bench.run(change)
    await move_clock(bench, WEEK + timedelta(hours=1))
    answer = await join(bench, bench.machine(), node.prover)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == f"x509pop:{reason}"
    assert await bench.one("SELECT count(*) FROM node_certs") == 1


async def test_ramdisk_never_comes_back_by_its_certificate(bench: Bench) -> None:
    """A ramdisk has nothing to keep a key in; whoever has one took it from memory."""
    machine = bench.machine()
    token = await bench.token(role="ramdisk")
    [first] = await bench.ask(machine.request(token.payload, role="ramdisk"))
    node = OwnNode(machine, first)
    await move_clock(bench, WEEK + timedelta(hours=1))
    as_itself = await join(bench, bench.machine(), node.prover, role="ramdisk")
    assert as_itself["outcome"] == "refused"
    assert await last_reason(bench) == "join:role-not-listed"

    as_node = await join(bench, bench.machine(), node.prover)
    assert as_node["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:wrong-role"


async def test_expired_certificate_comes_back_once(bench: Bench) -> None:
    """Two machines with one expired certificate, in one batch: one of them is the node, the other is nobody."""
    node = await _node(bench)
    await move_clock(bench, WEEK + timedelta(hours=1))
    machines = [bench.machine(), bench.machine()]
    challenged = await bench.ask(*[await first_request(m, node.prover) for m in machines])
    answers = await bench.ask(
        *[
            await next_request(machine, node.prover, challenge)
            for machine, challenge in zip(machines, challenged, strict=True)
        ]
    )

    assert [a["outcome"] for a in answers] == ["joined", "refused"]
    assert await last_reason(bench) == "x509pop:superseded"
    assert await bench.one("SELECT count(*) FROM nodes") == 1
    assert await bench.one("SELECT count(*) FROM node_certs WHERE is_current") == 1


async def test_ban_of_the_old_key_wins_over_its_expired_certificate(bench: Bench) -> None:
    """A key that was banned does not come back under a new one."""
    node = await _node(bench)
    spki = node.certificate.public_key()
    from cryptography.hazmat.primitives.serialization import PublicFormat  # noqa: PLC0415

    der = spki.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    await ban(bench, "spki", sha256(der).hexdigest())
    await move_clock(bench, WEEK + timedelta(hours=1))
    answer = await join(bench, bench.machine(), node.prover)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"


@pytest.mark.case("B76")
async def test_certificate_of_another_node_without_its_key_changes_nothing(bench: Bench) -> None:
    """A certificate is public: showing it with somebody else's signature leaves the node as it was, byte for byte."""
    node = await _node(bench)
    await move_clock(bench, WEEK + timedelta(hours=1))
    before = [dict(r) for r in await bench.fetch("SELECT * FROM nodes, node_certs")]
    thief, key = bench.machine(), ec.generate_private_key(ec.SECP256R1())
    pem = node.certificate.public_bytes(Encoding.PEM)
    prover = X509PopProver(lambda: pem, FileKey(lambda: pem_of_key(key)), TRUST_DOMAIN)
    answer = await join(bench, thief, prover)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:signature"
    assert [dict(r) for r in await bench.fetch("SELECT * FROM nodes, node_certs")] == before
