"""cloud-iid on a real service: which instances are admitted, as what, and how often."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import pem_of_key
from tests.support.clouds import Certified, Cms, Folder, certify
from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import Bench, Machine, certificate_of, join_bench
from tests.support.proving import approve_all, ban, join, last_reason, move_clock
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.attestors.x509pop.config import Config
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.reclaims import ReclaimOrder, grant_reclaim
from watchword.handlers.store.connection import Database
from watchword.schemas.ids import Role

pytestmark = pytest.mark.postgres

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Instance:
    """An instance of AWS, and what its metadata service gives."""

    aws: Certified
    account: str = ACCOUNT
    instance: str = "i-0123456789abcdef0"
    region: str = "eu-west-1"

    def payload(self) -> bytes:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        content = (
            f'{{"accountId":"{self.account}","availabilityZone":"{self.region}a",'
            f'"instanceId":"{self.instance}","pendingTime":"{now}","region":"{self.region}"}}'
        )
        made = Cms(content.encode(), self.aws).make()
        return CloudEvidence("aws", "rsa2048", b"", made).encode()


@pytest.fixture(scope="module")
def aws() -> Certified:
    now = datetime.now(UTC)
    return certify(
        "AWS",
        key=rsa.generate_private_key(65537, 2048),
        not_before=now - timedelta(days=1),
        not_after=now + timedelta(days=1),
    )


@pytest.fixture
def folder(tmp_path: Path, aws: Certified) -> Folder:
    made = Folder(tmp_path)
    for region in ("eu-west-1", "us-east-1"):
        made.add(aws.certificate, provider="aws", region=region, purpose="rsa2048")
    made.write()
    return made


@pytest.fixture
def anchors(folder: Folder) -> AnchorFolder:
    return AnchorFolder(folder.path)


@pytest.fixture
async def bench(database: str, anchors: AnchorFolder) -> AsyncGenerator[Bench]:
    async with join_bench(database, attestors=[CloudIidAttestor(anchors)]) as bench:
        await bench.place("acme", "web")
        yield bench


@pytest.fixture
def instance(aws: Certified) -> Instance:
    return Instance(aws)


async def allow(bench: Bench, *, account: str = ACCOUNT, approval: bool = False) -> None:
    """Add the account, for instances of one region."""
    await bench.fetch(
        "INSERT INTO cloud_accounts (provider, account, tenant, pool, role, regions, approval, allowed_kinds, created_by)"
        " VALUES ('aws', $1, 'acme', 'web', 'node', '{eu-west-1}', $2, '{diag.*}', 'test')",
        account,
        approval,
    )


async def outcome(
    bench: Bench, instance: Instance, machine: Machine | None = None, role: Role = "node"
) -> str:
    """Join with a fresh key, unless one is given, and return the outcome."""
    by = machine or bench.machine()
    (answer,) = await bench.ask(by.request(instance.payload(), attestor="cloud-iid", role=role))
    return str(answer["outcome"])


async def test_an_instance_of_a_named_account_joins_as_the_account_says(
    bench: Bench, instance: Instance
) -> None:
    """Where a machine goes is an operator's word and not its own."""
    await allow(bench)
    machine = bench.machine()
    (answer,) = await bench.ask(machine.request(instance.payload(), attestor="cloud-iid"))

    assert answer["outcome"] == "joined"
    joined = answer["joined"]
    assert (joined["tenant"], joined["pool"], joined["role"]) == ("acme", "web", "node")
    assert joined["allowedKinds"] == ["diag.*"]


@pytest.mark.case("B11")
async def test_an_instance_joins_once_for_ever(bench: Bench, instance: Instance) -> None:
    """Its document can be had by every process on it, for as long as it runs."""
    await allow(bench)
    assert await outcome(bench, instance) == "joined"

    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "cloud-iid:bound-elsewhere"


async def test_it_stays_used_up_when_its_node_is_gone(bench: Bench, instance: Instance) -> None:
    """Deleting a node must not make its instance's old document good again."""
    await allow(bench)
    assert await outcome(bench, instance) == "joined"
    await bench.run("DELETE FROM node_bindings")

    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "cloud-iid:replayed"


@pytest.mark.case("B11")
@pytest.mark.case("B12")
async def test_a_grant_lets_one_lost_instance_back_once(
    bench: Bench, instance: Instance, database: str
) -> None:
    """A disk that was lost must cost neither a new account nor a switch that opens all the others."""
    await allow(bench)
    other = replace(instance, instance="i-00000000000000002")
    (answer,) = await bench.ask(bench.machine().request(instance.payload(), attestor="cloud-iid"))
    node = answer["joined"]["nodeId"]
    assert await outcome(bench, other) == "joined"
    subject = Subject("cloud-instance", f"aws/{ACCOUNT}/{instance.instance}")
    store = Database(database, application_name="test")
    try:
        order = ReclaimOrder(node=UUID(node), attestor="cloud-iid", subject=subject)
        await grant_reclaim(store, Actor("ada", "its disk was lost"), order)
    finally:
        await store.close()

    assert await outcome(bench, other) == "refused"
    (again,) = await bench.ask(bench.machine().request(instance.payload(), attestor="cloud-iid"))
    assert again["joined"]["nodeId"] == node
    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "cloud-iid:bound-elsewhere"


async def test_an_instance_comes_back_by_the_certificate_that_it_was_given(
    database: str, anchors: AnchorFolder, instance: Instance
) -> None:
    """Its document is used up for ever: what brings a machine back that was off for too long is its own key."""
    own = X509PopAttestor(Config(TRUST_DOMAIN, (), timedelta(days=10)))
    async with join_bench(database, attestors=[CloudIidAttestor(anchors), own]) as bench:
        await bench.place("acme", "web")
        await allow(bench)
        machine = bench.machine()
        (answer,) = await bench.ask(machine.request(instance.payload(), attestor="cloud-iid"))
        pem = x509.load_der_x509_certificate(certificate_of(answer)).public_bytes(Encoding.PEM)
        await move_clock(bench, timedelta(days=8))
        shown = X509PopProver(lambda: pem, FileKey(lambda: pem_of_key(machine.key)), TRUST_DOMAIN)
        back = await join(bench, bench.machine(), shown)

        assert back["joined"]["nodeId"] == answer["joined"]["nodeId"]
        assert await bench.one("SELECT generation FROM nodes") == 2
        assert await outcome(bench, instance) == "refused"
        assert await bench.one("SELECT count(*) FROM nodes") == 1


@pytest.mark.case("B26")
async def test_the_same_request_again_gets_the_same_answer(
    bench: Bench, instance: Instance
) -> None:
    """Documents are cached, and requests are delivered twice: neither is a replay by itself."""
    await allow(bench)
    machine = bench.machine()
    request = machine.request(instance.payload(), attestor="cloud-iid")

    (first,) = await bench.ask(request)
    (again,) = await bench.ask(request)
    later = await outcome(bench, instance, machine)

    assert first["joined"]["nodeId"] == again["joined"]["nodeId"]
    assert later == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_two_machines_with_one_document_are_one_node(
    bench: Bench, instance: Instance
) -> None:
    """In one batch, where neither has seen the other."""
    await allow(bench)
    requests = [bench.machine().request(instance.payload(), attestor="cloud-iid") for _ in range(4)]
    answers = await bench.ask(*requests)
    assert sorted(str(answer["outcome"]) for answer in answers) == ["joined", *["refused"] * 3]


@pytest.mark.case("B03")
async def test_a_region_joins_after_its_anchor_was_loaded(
    bench: Bench, instance: Instance, folder: Folder, anchors: AnchorFolder, aws: Certified
) -> None:
    """The same service, not restarted."""
    await allow(bench)
    await bench.run("UPDATE cloud_accounts SET regions = NULL")
    new = replace(instance, region="ap-southeast-7")
    assert await outcome(bench, new) == "refused"
    assert await last_reason(bench) == "cloud-iid:region-unknown"

    folder.add(aws.certificate, provider="aws", region="ap-southeast-7", purpose="rsa2048")
    folder.write()
    anchors.reload()

    assert await outcome(bench, new) == "joined"


async def test_what_an_operator_did_not_name_is_refused(bench: Bench, instance: Instance) -> None:
    """A good document of somebody else's account is a stranger's."""
    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "cloud-iid:account-unknown"
    await allow(bench)
    assert await outcome(bench, replace(instance, region="us-east-1")) == "refused"
    assert await last_reason(bench) == "cloud-iid:region"
    assert await outcome(bench, instance, role="site") == "refused"
    assert await last_reason(bench) == "cloud-iid:wrong-role"
    await bench.run("UPDATE cloud_accounts SET revoked_at = now()")
    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "cloud-iid:account-revoked"


async def test_an_account_may_ask_for_an_operator(bench: Bench, instance: Instance) -> None:
    """With AWS and Azure nothing ties a document to a key but somebody's look at its fingerprint."""
    await allow(bench, approval=True)
    machine = bench.machine()
    assert await outcome(bench, instance, machine) == "deferred"
    assert await bench.one("SELECT count(*) FROM attestation_uses") == 0
    assert await bench.one("SELECT count(*) FROM node_bindings") == 0

    await approve_all(bench)

    assert await outcome(bench, instance) == "deferred"  # another key: nobody agreed to it
    assert await outcome(bench, instance, machine) == "joined"


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
async def test_what_is_no_evidence_is_refused(bench: Bench, instance: Instance, cut: int) -> None:
    """The reason is for the security team; the worker goes on."""
    payload = instance.payload()[:cut]
    (answer,) = await bench.ask(bench.machine().request(payload, attestor="cloud-iid"))
    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "cloud-iid:malformed"


@pytest.mark.case("B74")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("cloud-instance", f"aws/{ACCOUNT}/i-0123456789abcdef0"),
        ("cloud-account", f"aws/{ACCOUNT}"),
    ],
)
async def test_a_ban_reaches_instance_and_account(
    bench: Bench, instance: Instance, kind: str, value: str
) -> None:
    """A banned machine must not come back under another node id."""
    await allow(bench)
    await ban(bench, kind, value)
    assert await outcome(bench, instance) == "refused"
    assert await last_reason(bench) == "join:banned"
