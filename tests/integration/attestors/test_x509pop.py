"""x509pop on a real service: whose certificate admits, as what, and what does not."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.certificates import Held, OperatorCa, usage
from tests.support.crypto import TRUST_DOMAIN, NodeKey, rsa_key, spki_of
from tests.support.joins import Bench, Machine, join_bench
from tests.support.proving import (
    ban,
    csr_sha256,
    first_request,
    join,
    last_reason,
    move_clock,
    next_request,
    state_of,
)
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.evidence import PossessionEvidence, signed_text
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

GRACE = timedelta(days=10)


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


def prover_of(held: Held) -> X509PopProver:
    """Return the prover of whoever holds a certificate."""
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa_key(),
        Ed25519PrivateKey.generate(),
    ],
    ids=["p256", "p384", "p521", "rsa", "ed25519"],
)
async def test_holder_of_a_certified_key_joins_where_the_rule_leads(
    bench: Bench, authority: OperatorCa, key: NodeKey
) -> None:
    """The prover's own evidence, over an intermediate CA, with each kind of key that machines have."""
    held = OperatorCa("site CA", issuer=authority).give(key=key)
    answer = await join(bench, bench.machine(), prover_of(held))

    assert answer["outcome"] == "joined"
    joined = answer["joined"]
    assert (joined["tenant"], joined["pool"], joined["role"]) == ("acme", "web", "node")
    assert joined["allowedKinds"] == ["diag.*"]
    assert await bench.one("SELECT count(*) FROM refusals") == 0
    kinds = await bench.fetch("SELECT kind, value FROM node_subjects ORDER BY kind")
    assert [tuple(row) for row in kinds] == [
        ("certificate", sha256(held.certificate.tbs_certificate_bytes).hexdigest()),
        ("spki", sha256(spki_of(key)).hexdigest()),
    ]


async def test_challenge_leaves_no_row(bench: Bench, authority: OperatorCa) -> None:
    """Whoever has a copy of a certificate may ask as often as they like; it costs no space."""
    request = await first_request(bench.machine(), prover_of(authority.give()))
    [first] = await bench.ask(request)
    [again] = await bench.ask(request)

    assert first["deferred"]["type"] == again["deferred"]["type"] == "challenge"
    assert first["deferred"]["challenge"] != again["deferred"]["challenge"]
    for table in ("inbox", "nodes", "node_bindings", "attestation_uses", "refusals", "journal"):
        assert await bench.one(f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - our tables


def _expired(ca: OperatorCa) -> Held:
    return ca.give(ends=timedelta(seconds=-1))


def _unknown_critical(ca: OperatorCa) -> Held:
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
    return ca.give(extensions=((usage(digital_signature=True), True), (unknown, True)))


def _under_a_leaf(ca: OperatorCa) -> Held:
    """Return a certificate that a machine has signed with its own."""
    machine = ca.give("m0.web.fleet.example")
    false_ca = OperatorCa("m0.web.fleet.example", key=machine.key)
    return replace(false_ca.give(), intermediates=(machine.certificate,))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda _: OperatorCa("another CA").give(), "chain"),
        (lambda _: OperatorCa().give(), "chain"),
        (_expired, "chain"),
        (lambda ca: ca.give(begins=timedelta(days=1)), "chain"),
        (_unknown_critical, "chain"),
        (_under_a_leaf, "chain"),
        (lambda ca: ca.give(extensions=()), "chain"),
        (lambda ca: ca.give(extensions=((usage(), True),)), "chain"),
        (lambda ca: Held(ca.certificate, ca.key), "chain"),
        (lambda ca: replace(OperatorCa("i", issuer=ca).give(), intermediates=()), "chain"),
        (lambda ca: ca.give("m1.db.fleet.example"), "no-rule"),
        (lambda ca: ca.give(key=ec.generate_private_key(ec.SECP224R1())), "certificate"),
        (lambda ca: ca.give(key=rsa_key(1024)), "certificate"),
    ],
    ids=[
        "another-ca",
        "another-ca-of-the-name",
        "expired",
        "not-yet",
        "unknown-critical",
        "under-a-leaf",
        "no-key-usage",
        "may-not-sign",
        "the-ca-itself",
        "intermediate-missing",
        "no-rule",
        "p224",
        "rsa-1024",
    ],
)
async def test_certificate_that_does_not_lead_to_a_rule_is_refused(
    bench: Bench, authority: OperatorCa, given: object, reason: str
) -> None:
    """Each kind of unfit certificate is told apart inside, before a challenge is given."""
    assert callable(given)
    held = given(authority)
    [answer] = await bench.ask(await first_request(bench.machine(), prover_of(held)))

    assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
    assert await last_reason(bench) == f"x509pop:{reason}"
    assert await bench.one("SELECT tenant FROM refusals") == "root"


async def test_ed25519_ca_is_refused(database: str) -> None:
    """The path builder takes no such CA, and we take none that it does not; docs/decisions/attestors.md."""
    ca = OperatorCa(key=Ed25519PrivateKey.generate())
    taken = Rule((ca.certificate,), {"commonName": "*"}, TenantId("acme"), "web")
    async with join_bench(database, attestors=[attestor(taken)]) as bench:
        await bench.place("acme", "web")
        answer = await join(bench, bench.machine(), prover_of(ca.give()))

        assert answer["outcome"] == "refused"
        assert await last_reason(bench) == "x509pop:chain"


@pytest.mark.case("B56")
async def test_same_certificate_from_a_second_key_is_refused(
    bench: Bench, authority: OperatorCa
) -> None:
    """A copied key file displaces nobody: the first machine keeps its node, its state and its certificate."""
    held = authority.give()
    first = await join(bench, bench.machine(), prover_of(held))
    before = [dict(r) for r in await bench.fetch("SELECT * FROM nodes, node_certs, node_bindings")]
    second = await join(bench, bench.machine(), prover_of(held))

    assert first["outcome"] == "joined"
    assert second["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:bound-elsewhere"
    after = [dict(r) for r in await bench.fetch("SELECT * FROM nodes, node_certs, node_bindings")]
    assert after == before


@pytest.mark.case("B56")
async def test_reissued_certificate_of_the_same_key_is_the_same_machine(
    bench: Bench, authority: OperatorCa
) -> None:
    """Bound is the key, not the paper: a reissue gives no second node."""
    held = authority.give()
    again = authority.give(key=held.key)
    await join(bench, bench.machine(), prover_of(held))
    second = await join(bench, bench.machine(), prover_of(again))

    assert second["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:bound-elsewhere"


@pytest.mark.case("B57")
async def test_same_join_twice_is_one_node(bench: Bench, authority: OperatorCa) -> None:
    """A redelivery, and a retry with the same key, get the same result: one node, one certificate, one event."""
    machine, prover = bench.machine(), prover_of(authority.give())
    [challenged] = await bench.ask(await first_request(machine, prover))
    request = await next_request(machine, prover, challenged)
    [first] = await bench.ask(request)
    [redelivered] = await bench.ask(request)
    retried = await join(bench, machine, prover)

    assert first["outcome"] == "joined"
    assert redelivered["joined"] == retried["joined"] == first["joined"]
    assert await bench.one("SELECT count(*) FROM nodes") == 1
    assert await bench.one("SELECT count(*) FROM node_certs") == 1
    assert await bench.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1


async def test_reattest_rekeys_the_node_and_revokes_its_certificate(
    database: str, rule: Rule, authority: OperatorCa
) -> None:
    """Where the rule says so, a reinstalled machine keeps its node; the old certificate dies with it."""
    reattesting = replace(rule, reattest=True)
    async with join_bench(database, attestors=[attestor(reattesting)]) as bench:
        await bench.place("acme", "web")
        prover = prover_of(authority.give())
        first = await join(bench, bench.machine(), prover)
        second = await join(bench, bench.machine(), prover)

        assert second["joined"]["nodeId"] == first["joined"]["nodeId"]
        assert await bench.one("SELECT count(*) FROM nodes") == 1
        rows = await bench.fetch(
            "SELECT is_current, revoked_at IS NOT NULL FROM node_certs ORDER BY issued_at"
        )
        assert [tuple(row) for row in rows] == [(False, True), (True, False)]


@pytest.mark.case("B74")
@pytest.mark.parametrize("kind", ["certificate", "spki"])
async def test_ban_follows_the_certificate_to_another_key(
    bench: Bench, authority: OperatorCa, kind: str
) -> None:
    """Known by the SHA-256 of its TBS and by its key: never by bytes that can be changed without the key."""
    held = authority.give()
    value = {
        "certificate": sha256(held.certificate.tbs_certificate_bytes).hexdigest(),
        "spki": sha256(spki_of(held.key)).hexdigest(),
    }[kind]
    await ban(bench, kind, value)
    answer = await join(bench, bench.machine(), prover_of(held))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"
    assert await bench.one("SELECT tenant FROM refusals") == "acme"


# Rounds


async def _challenged(bench: Bench, machine: Machine, held: Held) -> tuple[bytes, bytes]:
    """Return challenge and state of a first round."""
    [answer] = await bench.ask(await first_request(machine, prover_of(held)))
    from base64 import b64decode  # noqa: PLC0415 - here alone

    return b64decode(answer["deferred"]["challenge"]), state_of(answer)


async def test_challenge_belongs_to_the_csr(bench: Bench, authority: OperatorCa) -> None:
    """Another key's answer to it is refused, although the certificate's key has signed."""
    held, other = authority.give(), bench.machine()
    challenge, state = await _challenged(bench, bench.machine(), held)
    payload = await prover_of(held).answer(challenge, csr_sha256(other), "node")
    [answer] = await bench.ask(other.request(payload, attestor="x509pop", state=state))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:challenge"


async def test_challenge_belongs_to_the_certificate(bench: Bench, authority: OperatorCa) -> None:
    """What was asked of one certificate is not answered by another, acceptable as it may be."""
    machine, held, other = bench.machine(), authority.give(), authority.give("m2.web.fleet.example")
    challenge, state = await _challenged(bench, machine, held)
    payload = await prover_of(other).answer(challenge, csr_sha256(machine), "node")
    [answer] = await bench.ask(machine.request(payload, attestor="x509pop", state=state))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:challenge"


async def test_challenge_expires(bench: Bench, authority: OperatorCa) -> None:
    """A recorded exchange is worth nothing after two minutes."""
    machine, held = bench.machine(), authority.give()
    challenge, state = await _challenged(bench, machine, held)
    payload = await prover_of(held).answer(challenge, csr_sha256(machine), "node")
    await move_clock(bench, timedelta(minutes=2, seconds=1))
    [answer] = await bench.ask(machine.request(payload, attestor="x509pop", state=state))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:challenge"


async def test_challenge_belongs_to_the_role(
    database: str, rule: Rule, authority: OperatorCa
) -> None:
    """A rule for two roles does not let an answer for one count for the other."""
    both = replace(rule, roles=frozenset(("node", "site")))
    async with join_bench(database, attestors=[attestor(both)]) as bench:
        await bench.place("acme", "web")
        machine, held = bench.machine(), authority.give()
        challenge, state = await _challenged(bench, machine, held)
        payload = await prover_of(held).answer(challenge, csr_sha256(machine), "site")
        request = machine.request(payload, attestor="x509pop", role="site", state=state)
        [answer] = await bench.ask(request)

        assert answer["outcome"] == "refused"
        assert await last_reason(bench) == "x509pop:challenge"


async def test_signature_covers_domain_role_nonce_and_csr(
    bench: Bench, authority: OperatorCa
) -> None:
    """A signature over any of them changed is refused: it was made for something else."""
    machine, held = bench.machine(), authority.give()
    challenge, state = await _challenged(bench, machine, held)
    csr = csr_sha256(machine)
    for text in (
        signed_text("other.example", "node", challenge, csr),
        signed_text(TRUST_DOMAIN, "site", challenge, csr),
        signed_text(TRUST_DOMAIN, "node", bytes(32), csr),
        signed_text(TRUST_DOMAIN, "node", challenge, bytes(32)),
        challenge,
    ):
        signature = FileKey(lambda: held.key_pem).sign(text)
        payload = PossessionEvidence(held.der, (), signature).encode()
        [answer] = await bench.ask(machine.request(payload, attestor="x509pop", state=state))
        assert answer["outcome"] == "refused"
        assert await last_reason(bench) == "x509pop:signature"
    assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_signature_without_a_challenge_is_refused(
    bench: Bench, authority: OperatorCa
) -> None:
    """Nobody chooses their own nonce."""
    machine, held = bench.machine(), authority.give()
    payload = await prover_of(held).answer(bytes(32), csr_sha256(machine), "node")
    [answer] = await bench.ask(machine.request(payload, attestor="x509pop"))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "x509pop:challenge"
