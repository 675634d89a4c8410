"""What went wrong for others, and does not here: cases on certificates, states and blast radius."""

import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, ObjectIdentifier

from tests.support.anchors import MAC, SiteAgent, image
from tests.support.certificates import Held, OperatorCa
from tests.support.crypto import TRUST_DOMAIN, csr_of
from tests.support.joins import Bench, Machine, certificate_of, join_bench, keys
from tests.support.proving import approve_all, ban, join, last_reason, move_clock
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.schemas.canonical import b64
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

CA = OperatorCa()
CONFIG = Config(
    TRUST_DOMAIN,
    (Rule((CA.certificate,), {"commonName": "*"}, TenantId("acme"), "web", reattest=True),),
)
MOST_CPU_S = 0.05
UPN = ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")


def prover_of(held: Held) -> X509PopProver:
    """Return the prover of whoever holds a certificate."""
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


def machine_naming(bench: Bench, *names: x509.GeneralName) -> Machine:
    """Return a machine whose CSR asks for names."""
    machine = bench.machine()
    machine.csr = csr_of(machine.key, names=x509.SubjectAlternativeName(names))
    return machine


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service with all attestors."""
    attestors = [X509PopAttestor(CONFIG), ImageAttestor(), DiscoveryAttestor()]
    async with join_bench(database, attestors=attestors) as bench:
        await bench.place("acme", "web", "berlin")
        yield bench


@pytest.mark.case("B62")
@pytest.mark.case("B63")
@pytest.mark.case("B65")
@pytest.mark.case("B67")
async def test_names_of_a_csr_are_never_in_the_certificate(bench: Bench) -> None:
    """A machine asks for a UPN, another node's names and public ones, and gets its own name, once, critical."""
    token = await bench.token(uses=2)
    [other] = await bench.ask(bench.machine().request(token.payload))
    other_uri = x509.UniformResourceIdentifier(
        f"spiffe://{TRUST_DOMAIN}/tenant/acme/node/{other['joined']['nodeId']}"
    )
    machine = machine_naming(
        bench,
        x509.OtherName(UPN, b"\x0c\x05admin"),
        x509.OtherName(UPN, b"\x0c\x05admin"),
        x509.DNSName("node-b.fleet.example"),
        x509.DNSName("public.example.com"),
        x509.IPAddress(ip_address("10.0.0.2")),
        x509.IPAddress(ip_address("2001:db8::2")),
        other_uri,
    )
    [answer] = await bench.ask(machine.request(token.payload))
    certificate = x509.load_der_x509_certificate(certificate_of(answer))

    names = [e for e in certificate.extensions if e.oid == ExtensionOID.SUBJECT_ALTERNATIVE_NAME]
    assert len(names) == 1
    assert names[0].critical
    assert list(certificate.subject) == []
    assert list(names[0].value) == [
        x509.UniformResourceIdentifier(
            f"spiffe://{TRUST_DOMAIN}/tenant/acme/node/{answer['joined']['nodeId']}"
        )
    ]
    oids = [extension.oid for extension in certificate.extensions]
    assert len(oids) == len(set(oids))
    assert 0 < certificate.serial_number < 1 << 159


@pytest.mark.case("B68")
@pytest.mark.parametrize(
    "names",
    [
        [x509.DNSName(f"name-{number}.fleet.example") for number in range(500)],
        [x509.DNSName("n" * 250)] * 260,
    ],
    ids=["500-names", "64-kib"],
)
async def test_csr_that_is_too_large_is_refused_cheaply(
    bench: Bench, names: list[x509.GeneralName]
) -> None:
    """Before its signature is looked at, and without spending the token that came with it."""
    token = await bench.token()
    large = machine_naming(bench, *names).csr
    request = bench.machine().request(token.payload, csr=b64(large))
    await bench.ask(bench.machine().request(b"warm"))
    before = time.process_time()
    [answer] = await bench.ask(request)
    spent = time.process_time() - before

    assert answer["failed"] == {"code": "INVALID_INPUT"}
    assert spent < MOST_CPU_S
    assert await bench.one("SELECT uses_left FROM tokens") == 1


@pytest.mark.case("B71")
@pytest.mark.case("B72")
async def test_lost_answer_costs_the_machine_neither_token_nor_identity(database: str) -> None:
    """After the commit the worker is gone: the event waits, the same key gets the same certificate, no other does."""
    crypto = keys()
    async with join_bench(database, crypto=crypto) as first:
        token = await first.token()
        machine = first.machine()
        [lost] = await first.ask(machine.request(token.payload))
    async with join_bench(database, crypto=crypto, worker="w1") as second:
        retries = [(await second.ask(machine.request(token.payload)))[0] for _ in range(3)]
        [thief] = await second.ask(second.machine().request(token.payload))

        assert [retry["joined"] for retry in retries] == [lost["joined"]] * 3
        assert thief["outcome"] == "refused"
        assert await second.one("SELECT state FROM nodes") == "adopting"
        assert await second.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1
        assert await second.one("SELECT count(*) FROM bans") == 0


@pytest.mark.case("B73")
async def test_bad_instance_locks_nobody_else(bench: Bench) -> None:
    """Whatever is refused of a token, an image, a certificate or a site's key, the next machine of it joins."""
    token, made = await bench.token(uses=20), await image(bench, second_fact="unsafe_single_factor")
    agent = await SiteAgent(bench).registered()
    held = CA.give()
    bad = token.payload[:-1] + bytes((token.payload[-1] ^ 1,))
    for _ in range(3):
        await bench.ask(bench.machine().request(bad))
        await bench.ask(bench.machine().request(b"junk", attestor="x509pop"))
        await bench.ask(bench.machine().request(b"junk", attestor="image"))
        await agent.vouches(bench.machine(), macs=[], product_uuid=None)
    assert await bench.one("SELECT count(*) FROM refusals") == 12

    [by_token] = await bench.ask(bench.machine().request(token.payload))
    answers = [
        by_token,
        await join(bench, bench.machine(), made.prover),
        await join(bench, bench.machine(), prover_of(held)),
        await agent.lets_in(bench.machine()),
    ]
    assert [answer["outcome"] for answer in answers] == ["joined"] * 4
    assert await bench.one("SELECT count(*) FROM bans") == 0


@pytest.mark.case("B74")
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("evicted", None),
        ("banned", "join:banned"),
        ("retired", "x509pop:not-its-node"),
        ("deleted", "x509pop:not-its-node"),
    ],
)
async def test_states_differ_for_a_certified_machine(
    bench: Bench, state: str, reason: str | None
) -> None:
    """Evicted has to attest again, and may; banned may not, whatever it shows."""
    prover = prover_of(CA.give())
    first = await join(bench, bench.machine(), prover)
    await bench.fetch("UPDATE nodes SET state = $1", state)
    again = await join(bench, bench.machine(), prover)

    if reason is None:
        assert again["joined"]["nodeId"] == first["joined"]["nodeId"]
        assert await bench.one("SELECT state FROM nodes") == "adopting"
    else:
        assert again["outcome"] == "refused"
        assert await last_reason(bench) == reason
        assert await bench.one("SELECT state FROM nodes") == state


@pytest.mark.case("B74")
@pytest.mark.parametrize("state", ["evicted", "banned"])
async def test_states_differ_for_a_ramdisk(bench: Bench, state: str) -> None:
    """The same for a machine that a site's agent vouches for."""
    agent = await SiteAgent(bench).registered()
    first = await agent.lets_in(bench.machine())
    await bench.fetch("UPDATE nodes SET state = $1", state)
    again = await agent.vouches(bench.machine())

    if state == "evicted":
        assert again["joined"]["nodeId"] == first["joined"]["nodeId"]
    else:
        assert again["outcome"] == "refused"
        assert await last_reason(bench) == "join:banned"


@pytest.mark.case("B74")
async def test_retired_machine_is_a_new_one_and_its_ban_goes_with_it(bench: Bench) -> None:
    """Retiring gives the name free, and the next ramdisk is another node; a ban of the machine follows it there."""
    agent = await SiteAgent(bench).registered()
    first = await agent.lets_in(bench.machine())
    await bench.run("UPDATE nodes SET state = 'retired'; DELETE FROM node_bindings")
    second = await agent.lets_in(bench.machine())
    await ban(bench, "machine", f"acme/mac:{MAC.replace(':', '')}")
    third = await agent.vouches(bench.machine())

    assert second["joined"]["nodeId"] != first["joined"]["nodeId"]
    assert third["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"


class BannedMeanwhile(ImageAttestor):
    """Has somebody ban the image between the verdict and its settlement."""

    bench: Bench | None = None

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Verify; then the ban is written and committed."""
        found = await super().verify(evidence, context)
        if self.bench is not None and isinstance(found, Admission):
            await ban(self.bench, found.subjects[0].kind, found.subjects[0].value)
            self.bench = None
        return found


@pytest.mark.case("B75")
async def test_ban_that_comes_while_evidence_is_judged_wins(database: str) -> None:
    """No `node.joined` after `node.banned`: bans are looked at under their lock, not when the reading began."""
    attestor = BannedMeanwhile()
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web", "berlin")
        attestor.bench = bench
        made = await image(bench, second_fact="unsafe_single_factor")
        answer = await join(bench, bench.machine(), made.prover)

        assert answer["outcome"] == "refused"
        assert await last_reason(bench) == "join:banned"
        assert await bench.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 0


@pytest.mark.case("B76")
async def test_request_that_names_a_node_with_bad_proof_changes_nothing(bench: Bench) -> None:
    """Every table but refusals and the inbox is as it was: no token is spent, no approval consumed, no row begun."""
    token = await bench.token(uses=3)
    [first] = await bench.ask(bench.machine().request(token.payload))
    reclaim = await bench.token(
        pool="db", expect={"node": first["joined"]["nodeId"]}, allow_reclaim=True
    )
    await join(bench, bench.machine(), (await image(bench)).prover)
    await approve_all(bench)
    tables = (
        "nodes",
        "node_certs",
        "node_bindings",
        "node_subjects",
        "tokens",
        "join_requests",
        "attestation_uses",
        "admission_claims",
        "audit_log",
    )

    async def rows() -> list[str]:
        found = [
            await bench.fetch(f"SELECT t::text FROM {table} t ORDER BY 1")  # noqa: S608 - ours
            for table in tables
        ]
        return [row[0] for table in found for row in table]

    before = await rows()
    wrong = reclaim.payload[:-1] + bytes((reclaim.payload[-1] ^ 1,))
    answers = await bench.ask(
        bench.machine().request(wrong),
        bench.machine().request(reclaim.payload),
        bench.machine().request(b"", attestor="x509pop"),
    )

    assert [answer["outcome"] for answer in answers] == ["refused"] * 3
    assert await rows() == before


@pytest.mark.case("B78")
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("pending", "deferred"),
        ("approved", "joined"),
        ("rejected", "refused"),
        ("expired", "deferred"),
    ],
)
async def test_every_state_of_a_waiting_join_leads_somewhere(
    bench: Bench, state: str, outcome: str
) -> None:
    """No machine is stuck without an operator's action: what has expired waits anew, what is rejected is told so."""
    made, machine = await image(bench), bench.machine()
    await join(bench, machine, made.prover)
    await bench.fetch("UPDATE join_requests SET state = $1", state)
    answer = await join(bench, machine, made.prover)

    assert answer["outcome"] == outcome
    if state == "rejected":
        await bench.run("UPDATE join_requests SET state = 'approved', version = version + 1")
        assert (await join(bench, machine, made.prover))["outcome"] == "joined"


@pytest.mark.case("B78")
async def test_wait_that_nobody_ended_does_not_bind_the_machine(bench: Bench) -> None:
    """An approval that came too late is none; the machine waits anew, with the same key, and joins."""
    made, machine = await image(bench), bench.machine()
    await join(bench, machine, made.prover)
    await approve_all(bench)
    await move_clock(bench, timedelta(days=1, minutes=1))
    late = await join(bench, machine, made.prover)
    await approve_all(bench)
    joined = await join(bench, machine, made.prover)

    assert late["outcome"] == "deferred"
    assert joined["outcome"] == "joined"
