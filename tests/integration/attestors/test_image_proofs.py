"""image whose second fact is another attestor's proof: both hold, of one machine, in one place, or nobody joins."""

from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest

from tests.support.anchors import MadeImage, SiteAgent, image
from tests.support.certificates import Held, OperatorCa
from tests.support.crypto import TRUST_DOMAIN, spki_of
from tests.support.joins import Bench, Machine, join_bench, keys
from tests.support.proving import (
    approve_all,
    ban,
    csr_sha256,
    first_request,
    join,
    last_reason,
    move_clock,
    next_request,
    state_of,
)
from tests.support.rebuilds import differences
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.evidence import ImageEvidence, SecondEvidence, parse_image
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.schemas.canonical import b64url
from watchword.schemas.ids import TenantId, UnverifiedPayload

pytestmark = pytest.mark.postgres

CA = OperatorCa()
RULE = Rule((CA.certificate,), {"commonName": "*.web.*"}, TenantId("acme"), "web", "berlin")
ELSEWHERE = (
    replace(RULE, match={"commonName": "*.db.*"}, pool="db"),
    replace(RULE, match={"commonName": "*.paris.*"}, site="paris"),
    replace(RULE, match={"commonName": "*.nowhere.*"}, site=None),
    replace(RULE, match={"commonName": "*.globex.*"}, tenant=TenantId("globex")),
)
CONFIG = Config(TRUST_DOMAIN, (RULE, *ELSEWHERE))


def prover_of(held: Held) -> X509PopProver:
    """Return the prover of whoever holds a certificate."""
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service with three attestors, and places that they may lead to."""
    attestors = [ImageAttestor(), X509PopAttestor(CONFIG), DiscoveryAttestor()]
    async with join_bench(database, attestors=attestors) as bench:
        for tenant, pool, site in (
            ("acme", "web", "berlin"),
            ("acme", "db", "paris"),
            ("globex", "web", "berlin"),
        ):
            await bench.place(tenant, pool, site)
        yield bench


@pytest.fixture
async def made(bench: Bench) -> MadeImage:
    """Give an image that asks for a certificate."""
    return await image(bench, second_fact="attestor:x509pop")


async def test_secret_and_certificate_admit_together(bench: Bench, made: MadeImage) -> None:
    """The image says where and as what; the certificate's key is bound, and both are known of the node."""
    held = CA.give()
    answer = await join(bench, bench.machine(), made.with_second(prover_of(held)))

    assert answer["outcome"] == "joined"
    joined = answer["joined"]
    assert (joined["tenant"], joined["pool"], joined["site"]) == ("acme", "web", "berlin")
    assert joined["allowedKinds"] == ["diag.*"]
    assert await bench.one("SELECT attestor FROM nodes") == "image"
    subjects = await bench.fetch("SELECT kind, value FROM node_subjects ORDER BY kind")
    assert [tuple(row) for row in subjects] == [
        ("certificate", sha256(held.certificate.tbs_certificate_bytes).hexdigest()),
        ("image", made.id),
        ("spki", sha256(spki_of(held.key)).hexdigest()),
    ]
    assert await bench.one("SELECT attestor FROM node_bindings") == "x509pop"
    assert await differences(bench.dsn) == []


async def test_challenge_goes_through_and_leaves_no_row(bench: Bench, made: MadeImage) -> None:
    """The machine answers the other attestor's challenge, and proves its secret again beside it."""
    machine, prover = bench.machine(), made.with_second(prover_of(CA.give()))
    [challenged] = await bench.ask(await first_request(machine, prover))

    assert challenged["deferred"]["type"] == "challenge"
    for table in ("inbox", "nodes", "join_requests", "attestation_uses", "refusals"):
        assert await bench.one(f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - our tables
    [answer] = await bench.ask(await next_request(machine, prover, challenged))
    assert answer["outcome"] == "joined"


async def test_another_worker_finishes_the_round(database: str) -> None:
    """Nothing of the two states is kept anywhere but on the machine."""
    crypto, held = keys(), CA.give()
    attestors = [ImageAttestor(), X509PopAttestor(CONFIG)]
    async with join_bench(database, attestors=attestors, crypto=crypto) as first:
        await first.place("acme", "web", "berlin")
        made = await image(first, second_fact="attestor:x509pop")
        machine, prover = first.machine(), made.with_second(prover_of(held))
        [challenged] = await first.ask(await first_request(machine, prover))
    answering = await next_request(machine, prover, challenged)
    async with join_bench(database, attestors=attestors, crypto=crypto, worker="w1") as second:
        [answer] = await second.ask(answering)

        assert answer["outcome"] == "joined"


async def test_certificate_is_one_machines_whichever_way_it_comes(
    bench: Bench, made: MadeImage
) -> None:
    """Alone or beside an image: its key has one node, and a second machine key is refused by the certificate's attestor."""
    held = CA.give()
    first = await join(bench, bench.machine(), made.with_second(prover_of(held)))
    beside = await join(bench, bench.machine(), made.with_second(prover_of(held)))
    reason = await last_reason(bench)
    alone = await join(bench, bench.machine(), prover_of(held))

    assert [a["outcome"] for a in (first, beside, alone)] == ["joined", "refused", "refused"]
    assert reason == await last_reason(bench) == "x509pop:bound-elsewhere"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_machine_comes_back_by_the_same_two_facts(database: str) -> None:
    """Where the certificate's rule lets it re-key its node, the pair does so too, and revokes the old certificate."""
    rule = replace(RULE, reattest=True)
    attestors = [ImageAttestor(), X509PopAttestor(Config(TRUST_DOMAIN, (rule,)))]
    async with join_bench(database, attestors=attestors) as bench:
        await bench.place("acme", "web", "berlin")
        made = await image(bench, second_fact="attestor:x509pop")
        prover = made.with_second(prover_of(CA.give()))
        first = await join(bench, bench.machine(), prover)
        second = await join(bench, bench.machine(), prover)

        assert second["joined"]["nodeId"] == first["joined"]["nodeId"]
        assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 1
        assert await differences(bench.dsn) == []


async def test_token_beside_an_image_is_spent_with_the_join_alone(bench: Bench) -> None:
    """One use for one node; whoever is refused for the image, or for the token, has spent nothing."""
    made = await image(bench, second_fact="attestor:join-token", once_per_machine=True)
    token = await bench.token(uses=2, site="berlin")
    prover = made.with_second(JoinTokenProver.of_text(_text(token.id, token.secret)))
    from watchword.schemas.requests import Claims  # noqa: PLC0415 - here alone

    claims = Claims(product_uuid="4c4c4544-0043-3510-8052-b4c04f4e3332")
    nameless = await join(bench, bench.machine(), prover)
    left = await bench.one("SELECT uses_left FROM tokens")
    first = await join(bench, bench.machine(), prover, claims=claims)
    again = await join(bench, bench.machine(), prover, claims=claims)

    assert (nameless["outcome"], left) == ("refused", 2)
    assert [first["outcome"], again["outcome"]] == ["joined", "refused"]
    assert await last_reason(bench) == "image:replayed"
    assert await bench.one("SELECT uses_left FROM tokens") == 1
    assert await bench.one("SELECT token_id FROM nodes") == token.id
    assert await differences(bench.dsn) == []


def _text(token_id: str, secret: bytes) -> str:
    return f"ww1.{token_id}.{b64url(secret).decode()}"


async def test_assertion_beside_an_image_counts_once(bench: Bench) -> None:
    """What the other attestor uses up is used up under its own id, with the join."""
    agent = await SiteAgent(bench).registered()
    await bench.run("UPDATE discovery_sites SET pool = 'web'")
    await agent.lets_in(bench.machine())
    made = await image(bench, second_fact="attestor:discovery", role="ramdisk")
    machine = bench.machine()
    assertion = await agent.asserted(machine)
    prover = made.with_second(DiscoveryProver(lambda _csr: assertion))
    answer = await join(bench, machine, prover, role="ramdisk")

    assert answer["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1
    used = await bench.fetch("SELECT attestor FROM attestation_uses")
    assert [row[0] for row in used] == ["discovery", "discovery"]


async def test_operators_word_is_no_proof(bench: Bench) -> None:
    """Where the other attestor would have to ask an operator, nothing is proved; nobody waits for half a join."""
    agent = await SiteAgent(bench).registered()
    made = await image(bench, second_fact="attestor:discovery", role="ramdisk")
    machine = bench.machine()
    assertion = await agent.asserted(machine)
    # Agreed to already, by itself: that is another join.
    await join(bench, machine, DiscoveryProver(lambda _csr: assertion), role="ramdisk")
    await approve_all(bench)
    prover = made.with_second(DiscoveryProver(lambda _csr: assertion))
    answer = await join(bench, machine, prover, role="ramdisk")

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:second-fact"
    assert await bench.one("SELECT state FROM join_requests") == "approved"


@pytest.mark.parametrize(
    "name", ["m1.db.fleet", "m1.paris.fleet", "m1.nowhere.fleet", "m1.globex.fleet"]
)
async def test_both_facts_lead_to_one_place(bench: Bench, made: MadeImage, name: str) -> None:
    """A machine of another pool, site or tenant does not get this one's by a stolen image."""
    answer = await join(bench, bench.machine(), made.with_second(prover_of(CA.give(name))))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:second-elsewhere"
    assert await bench.one("SELECT tenant FROM refusals") == "acme"
    assert await bench.one("SELECT count(*) FROM node_bindings") == 0


async def test_refusal_of_the_other_is_the_joins(bench: Bench, made: MadeImage) -> None:
    """Under the reason of whoever refused: the security team sees what was wrong with which fact."""
    stranger = OperatorCa("another CA").give()
    answer = await join(bench, bench.machine(), made.with_second(prover_of(stranger)))

    assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
    assert await last_reason(bench) == "x509pop:chain"


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (None, "image:second-missing"),
        (SecondEvidence("join-token", UnverifiedPayload(b"")), "image:second-other"),
        (SecondEvidence("image", UnverifiedPayload(b"")), "image:second-other"),
        (SecondEvidence("not-installed", UnverifiedPayload(b"")), "image:second-other"),
        (SecondEvidence("x509pop", UnverifiedPayload(b"")), "x509pop:malformed"),
        (SecondEvidence("x509pop", UnverifiedPayload(b"\xff" * 9_000)), "x509pop:malformed"),
    ],
    ids=["missing", "another", "itself", "not-installed", "empty", "junk"],
)
async def test_other_evidence_than_the_image_asks_for_is_refused(
    bench: Bench, made: MadeImage, second: SecondEvidence | None, reason: str
) -> None:
    """The image's row says which attestor, and the machine does not get to choose."""
    payload = ImageEvidence(parse_image(made.text), second).encode()
    [answer] = await bench.ask(bench.machine().request(payload, attestor="image"))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == reason


@pytest.mark.parametrize("second_fact", ["approval", "unsafe_single_factor"])
async def test_evidence_that_nobody_asked_for_is_refused(bench: Bench, second_fact: str) -> None:
    """What is not understood as wanted is a no, also where nothing more was wanted."""
    made = await image(bench, second_fact=second_fact)
    answer = await join(bench, bench.machine(), made.with_second(prover_of(CA.give())))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:second-other"


@pytest.mark.parametrize("attestor", ["image", "not-installed", "tpm"])
async def test_proof_that_is_not_to_be_had_admits_nobody(bench: Bench, attestor: str) -> None:
    """By itself, or by what this worker does not have: an image that says so lets nobody in."""
    made = await image(bench, second_fact=f"attestor:{attestor}")
    inside = ImageEvidence(parse_image(made.text)).encode()
    second = SecondEvidence(attestor, UnverifiedPayload(inside))
    payload = ImageEvidence(parse_image(made.text), second).encode()
    [answer] = await bench.ask(bench.machine().request(payload, attestor="image"))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:second-fact"


async def _answered(
    bench: Bench, made: MadeImage, machine: Machine, held: Held
) -> tuple[bytes, bytes]:
    """Return the payload that answers a challenge, and its state."""
    prover = made.with_second(prover_of(held))
    [challenged] = await bench.ask(await first_request(machine, prover))
    challenge = b64decode(challenged["deferred"]["challenge"])
    payload = await prover.answer(challenge, csr_sha256(machine), "node")
    return payload, state_of(challenged)


async def test_answer_is_worth_nothing_under_another_key(bench: Bench, made: MadeImage) -> None:
    """Moved to another CSR, whole or with the signature made for it: refused."""
    held, other = CA.give(), bench.machine()
    payload, state = await _answered(bench, made, bench.machine(), held)
    [moved] = await bench.ask(other.request(payload, attestor="image", state=state))

    assert moved["outcome"] == "refused"
    assert await last_reason(bench) == "image:challenge"
    assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_state_is_good_for_its_image_and_for_image_alone(
    bench: Bench, made: MadeImage
) -> None:
    """Neither another image nor the other attestor takes it, and a state of the other's is none of ours."""
    machine, held = bench.machine(), CA.give()
    payload, state = await _answered(bench, made, machine, held)
    another = await image(bench, second_fact="attestor:x509pop")
    length = len(parse_image(made.text).encode())
    swapped = parse_image(another.text).encode() + payload[length:]
    [challenged] = await bench.ask(await first_request(machine, prover_of(held)))
    inner = payload[length + 4 + len(b"x509pop") + 4 :]
    reasons = []
    for request in (
        machine.request(swapped, attestor="image", state=state),
        machine.request(inner, attestor="x509pop", state=state),
        machine.request(payload, attestor="image", state=state_of(challenged)),
        machine.request(payload, attestor="image"),
    ):
        [answer] = await bench.ask(request)
        assert answer["outcome"] == "refused"
        reasons.append(await last_reason(bench))

    assert reasons == [
        "image:challenge",
        "x509pop:challenge",
        "image:challenge",
        "x509pop:challenge",
    ]
    assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_challenge_expires_with_the_others(bench: Bench, made: MadeImage) -> None:
    """The image adds no time to what the other attestor gives."""
    machine = bench.machine()
    payload, state = await _answered(bench, made, machine, CA.give())
    await move_clock(bench, timedelta(minutes=2, seconds=1))
    [answer] = await bench.ask(machine.request(payload, attestor="image", state=state))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:challenge"


@pytest.mark.parametrize("banned", ["image", "certificate", "spki"])
async def test_ban_of_either_fact_wins(bench: Bench, made: MadeImage, banned: str) -> None:
    """What the other attestor has proved is banned as what the image proves is."""
    held = CA.give()
    values: dict[str, Callable[[], str]] = {
        "image": lambda: made.id,
        "certificate": lambda: sha256(held.certificate.tbs_certificate_bytes).hexdigest(),
        "spki": lambda: sha256(spki_of(held.key)).hexdigest(),
    }
    await ban(bench, banned, values[banned]())
    answer = await join(bench, bench.machine(), made.with_second(prover_of(held)))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"
