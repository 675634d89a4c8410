"""What is judged again comes to what is recorded: of every request, whatever has happened since."""

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.anchors import SiteAgent, image
from tests.support.attestors.scripted import Script, Scripted
from tests.support.certificates import Held, OperatorCa
from tests.support.clouds import Cms, Folder, certify
from tests.support.crypto import TRUST_DOMAIN
from tests.support.explaining import Asked, disagreements, explain, explain_all, explainer
from tests.support.joins import Bench, join_bench, keys
from tests.support.proving import first_request, join, next_request
from tests.support.renewals import Node, joined, renewed
from tests.support.scenarios import Ask, attestors, scenario, seed
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.operators import bans, reclaims, requests, tokens
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.requests import Seen
from watchword.handlers.operators.standing import SeenNode, change_nodes
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.connection import Database
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")
CA = OperatorCa()
RULE = Rule(
    (CA.certificate,), {"commonName": "*"}, TenantId("acme"), "web", "berlin", reattest=True
)


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


async def decide(store: Database, *, approve: bool = True) -> None:
    """Have an operator decide on everything that waits, as operators do."""
    waiting = await requests.list_requests(store, RequestFilter(state="pending"))
    act = requests.approve if approve else requests.reject
    await act(store, ADA, [Seen(row["id"], row["version"]) for row in waiting])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(4))
async def test_random_batches_are_explained_as_they_were_decided(
    database: str, number: int
) -> None:
    """Requests that get in each other's way within one batch and over several: every verdict is found again."""
    rnd = Random(number)  # noqa: S311 - a scenario's number, no secret
    crypto, asked = keys(), Asked()
    async with join_bench(database, attestors=attestors(), crypto=crypto, observer=asked) as bench:
        await seed(bench)
        start = scenario(rnd, bench.seal_to, 40)
        answers = await bench.ask(*[ask.value for ask in start.asks])
        later = scenario(rnd, bench.seal_to, 20, start).asks
        second = [_answered(ask, said) for ask, said in zip(start.asks, answers, strict=True)]
        await bench.ask(*[ask.value for ask in (*[s for s in second if s], *later)])
        for ask in scenario(rnd, bench.seal_to, 20, start).asks:
            await bench.ask(ask.value)
        found = await explain_all(bench, explainer(crypto[0], attestors()), asked.incoming.values())

    assert disagreements(found) == []
    outcomes = Counter(one.verdict.outcome for one in found)
    assert min(outcomes["joined"], outcomes["refused"], outcomes["invalid_input"]) > 0, outcomes


def _answered(ask: Ask, answer: dict[str, Any]) -> Ask | None:
    if (answer.get("deferred") or {}).get("type") != "challenge" or ask.machine is None:
        return None
    state = unb64(answer["deferred"]["state"])
    return Ask(ask.machine.request(ask.payload, attestor=ask.attestor, state=state), ask.attestor)


@pytest.mark.timeout(240)
async def test_each_attestor_and_what_became_of_its_nodes(
    database: str, store: Database, tmp_path: Path
) -> None:
    """Joins, refusals, deferrals and renewals of every attestor, behind bans, reclaims and revocations that came later."""
    aws = certify(
        "AWS",
        key=rsa.generate_private_key(65537, 2048),
        not_before=datetime.now(UTC) - timedelta(days=1),
        not_after=datetime.now(UTC) + timedelta(days=1),
    )
    folder = Folder(tmp_path)
    folder.add(aws.certificate, provider="aws", region="eu-west-1", purpose="rsa2048")
    folder.write()
    made: list[Any] = [
        ImageAttestor(),
        X509PopAttestor(Config(TRUST_DOMAIN, (RULE,))),
        DiscoveryAttestor(),
        CloudIidAttestor(AnchorFolder(folder.path)),
        Scripted("scripted"),
    ]
    crypto, asked = keys(), Asked()
    async with join_bench(database, attestors=made, crypto=crypto, observer=asked) as bench:
        await bench.place("acme", "web", "berlin")
        await _tokens(bench, store)
        await _images(bench, store)
        await _certificates(bench, store)
        await _ramdisks(bench, store)
        await _clouds(bench, aws)
        await _lives(bench, store)
        found = await explain_all(bench, explainer(crypto[0], made), asked.incoming.values())

    assert disagreements(found) == []
    seen = Counter((str(one.request["attestor"]), one.verdict.outcome) for one in found)
    for attestor in ("join-token", "image", "x509pop", "discovery", "cloud-iid", "scripted"):
        assert seen[attestor, "joined"], seen
        assert seen[attestor, "refused"], seen
    for attestor in ("image", "discovery"):
        assert seen[attestor, "deferred-approval"], seen
    assert seen["x509pop", "deferred-challenge"]
    assert seen["renew", "joined"]
    assert seen["renew", "refused"]


async def _tokens(bench: Bench, store: Database) -> None:
    made = await bench.token(uses=2, expect={"serial": "S1"})
    from watchword.schemas.requests import Claims  # noqa: PLC0415 - here alone

    right, wrong = Claims(serial="S1"), Claims(serial="S2")
    await bench.ask(bench.machine().request(made.payload, claims=wrong))
    machine = bench.machine()
    first = machine.request(made.payload, claims=right)
    await bench.ask(first)
    await bench.ask(first, machine.request(made.payload, claims=right))
    await bench.ask(
        *[bench.machine().request(made.payload, claims=right) for _ in range(3)],
        bench.machine().request(made.payload[:-1] + b"x", claims=right),
    )
    await tokens.revoke_token(store, ADA, made.id)
    await bench.ask(bench.machine().request(made.payload, claims=right))


async def _images(bench: Bench, store: Database) -> None:
    made = await image(bench)
    machine = bench.machine()
    await join(bench, machine, made.prover)
    await decide(store)
    await join(bench, machine, made.prover)
    other = bench.machine()
    await join(bench, other, made.prover)
    await join(bench, other, made.prover)  # waits already
    await decide(store, approve=False)
    await join(bench, other, made.prover)


def _prover_of(held: Held) -> X509PopProver:
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


async def _certificates(bench: Bench, store: Database) -> None:
    del store
    held, stranger = CA.give(), OperatorCa().give()
    for one, times in ((held, 2), (stranger, 1)):
        for _ in range(times):  # the second re-keys the first one's node
            await join(bench, bench.machine(), _prover_of(one))
    prover = _prover_of(held)
    machine = bench.machine()
    [challenged] = await bench.ask(await first_request(machine, prover))
    answer = await next_request(bench.machine(), prover, challenged)
    await bench.ask(answer)  # another key's challenge


async def _ramdisks(bench: Bench, store: Database) -> None:
    agent = await SiteAgent(bench).registered()
    machine = bench.machine()
    await agent.vouches(machine)
    await decide(store)
    await agent.vouches(machine)
    await agent.vouches(bench.machine())  # known by now: re-keyed without an operator
    await agent.vouches(bench.machine(), site="paris")


async def _clouds(bench: Bench, aws: Any) -> None:  # noqa: ANN401 - a made certificate
    await bench.fetch(
        "INSERT INTO cloud_accounts (provider, account, tenant, pool, role, approval, allowed_kinds, created_by)"
        " VALUES ('aws', '123456789012', 'acme', 'web', 'node', false, '{diag.*}', 'test')"
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = (
        '{"accountId":"123456789012","availabilityZone":"eu-west-1a","instanceId":"i-0123456789abcdef0",'
        f'"pendingTime":"{now}","region":"eu-west-1"}}'
    )
    payload = CloudEvidence("aws", "rsa2048", b"", Cms(content.encode(), aws).make()).encode()
    for _ in range(2):
        await bench.ask(bench.machine().request(payload, attestor="cloud-iid"))


async def _lives(bench: Bench, store: Database) -> None:
    """Nodes that are renewed, stolen, banned, retired and reclaimed after what is explained."""
    node = await renewed(bench, await joined(bench))
    await renewed(bench, node)
    await bench.ask(node.renewal(bench.machine()))  # a second key from one certificate
    script = Script(bind="b1", subjects=(("ek", "e1"),), uses=(("u", None),), rekey=True)
    machine = bench.machine()

    async def played(what: Script, by: Any = None) -> dict[str, Any]:  # noqa: ANN401 - a machine
        whose = by or bench.machine()
        [answer] = await bench.ask(whose.request(what.encode(), attestor="scripted"))
        return answer

    answer = await played(script, machine)
    await played(script.but(uses=()))  # re-keyed by its binding
    await played(script)  # replayed
    await played(script.but(bind="b2", uses=(("u", None),)))
    banned = (Subject("ek", "e1"),)
    await bans.add_bans(store, ADA, banned)
    await played(script.but(uses=()))
    await bans.remove_bans(store, ADA, banned)
    await played(script.but(uses=()))
    node_id = UUID(answer["joined"]["nodeId"])
    order = ReclaimOrder(node=node_id, attestor="scripted", subject=Subject("ek", "e9"))
    await reclaims.grant_reclaim(store, ADA, order)
    taken = script.but(bind="b9", subjects=(("ek", "e9"),))
    await played(taken)
    await played(taken.but(rekey=False))
    await change_nodes(store, ADA, "retire", [SeenNode(node_id)])
    await played(taken.but(uses=()))
    live = Node.of(late := bench.machine(), await played(Script(), late))
    await change_nodes(store, ADA, "delete", [SeenNode(UUID(live.id))])
    await bench.ask(live.renewal(bench.machine()))


async def test_steps_say_which_check_failed_and_no_secret(database: str) -> None:
    """Whoever reads it sees what was compared, and nothing that lets anybody in."""
    crypto, asked = keys(), Asked()
    async with join_bench(database, crypto=crypto, observer=asked) as bench:
        made = await bench.token()
        await bench.ask(bench.machine().request(made.payload))
        await bench.ask(bench.machine().request(made.payload))
        admitted, refused = await explain_all(bench, explainer(crypto[0]), asked.incoming.values())

    assert {step.status for step in admitted.steps} == {"passed"}
    failed = [step for step in refused.steps if step.status == "failed"]
    assert [step.number for step in failed] == ["4", "4.3"]
    assert failed[1].facts["uses_left"] == 0
    assert refused.recorded is not None
    assert refused.recorded.verdict.reason == "join-token:used-up"
    shown = repr(admitted.as_dict()) + repr(refused.as_dict())
    assert made.id in shown
    for secret in (made.secret.hex(), repr(made.secret), made.payload.hex()):
        assert secret not in shown


async def test_explaining_changes_nothing_and_now_is_another_time(database: str) -> None:
    """It runs in a READ ONLY transaction; judged now, an admitted CSR is the same admission, and a revoked one is not."""
    crypto, asked = keys(), Asked()
    async with join_bench(database, crypto=crypto, observer=asked) as bench:
        made = await bench.token(uses=2)
        await bench.ask(bench.machine().request(made.payload))
        [incoming] = asked.incoming.values()
        tables = ("tokens", "nodes", "node_certs", "inbox", "audit_log", "journal", "refusals")
        before = [await bench.fetch(f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - our tables
        made_by = explainer(crypto[0])
        past = await explain(bench, made_by, incoming)
        now = await explain(bench, made_by, incoming, as_of_now=True)
        assert [await bench.fetch(f"SELECT * FROM {table}") for table in tables] == before  # noqa: S608 - our tables
        await bench.run("UPDATE nodes SET state = 'evicted'")
        later = await explain(bench, made_by, incoming, as_of_now=True)

    assert (past.verdict.outcome, now.verdict.outcome) == ("joined", "joined")
    assert later.verdict.reason == "join:csr-reused"


async def test_a_draft_policy_changes_the_verdict_and_nothing_else(database: str) -> None:
    """What a narrower policy would have refused is seen before it is in force."""
    crypto, asked = keys(), Asked()
    async with join_bench(database, crypto=crypto, observer=asked, attestors=[Scripted()]) as bench:
        await bench.place("acme", "web")
        await bench.ask(bench.machine().request(Script().encode(), attestor="scripted"))
        [incoming] = asked.incoming.values()
        narrow = Scripted()
        narrow.limits = replace(narrow.limits, pools=frozenset(("db",)))
        found = await explain(bench, explainer(crypto[0], [narrow]), incoming)

    assert found.verdict.reason == "join:not-allowed"
    assert found.agrees is False
    assert [step.number for step in found.steps if step.status == "failed"] == ["11"]
