"""discovery on a real service: what a site's agent can vouch for, and what it cannot."""

import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from uuid_utils.compat import uuid7

from tests.support.anchors import MAC, PRODUCT, SECOND_MAC, SiteAgent, shows
from tests.support.joins import Bench, join_bench
from tests.support.proving import (
    approve_all,
    ban,
    csr_sha256,
    join,
    last_reason,
    move_clock,
)
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.discovery.verifier import KINDS, DiscoveryAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.schemas.canonical import canonical
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres

OTHER_MAC = "3c:ec:ef:00:00:99"
LOCAL_MAC = "02:00:5e:00:00:01"


async def facts(bench: Bench) -> dict[str, str]:
    """Return what an operator sees of the only join that waits."""
    found: dict[str, str] = json.loads(
        await bench.one("SELECT facts::text FROM join_requests WHERE state = 'pending'")
    )
    return found


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service that takes assertions."""
    async with join_bench(database, attestors=[DiscoveryAttestor()]) as bench:
        yield bench


@pytest.fixture
async def agent(bench: Bench) -> SiteAgent:
    """Give the agent of a site where known machines need no operator."""
    return await SiteAgent(bench).registered()


async def test_unknown_machine_joins_after_an_operator_agreed(agent: SiteAgent) -> None:
    """Tenant, pool and site are the key's; the kinds are those of ramdisks, on the certificate."""
    machine = agent.bench.machine()
    waits = await agent.vouches(machine)
    seen = await facts(agent.bench)
    await approve_all(agent.bench)
    answer = await agent.vouches(machine)

    assert waits["deferred"]["type"] == "approval"
    assert seen == {
        "csrSha256": csr_sha256(machine).hex(),
        "productUuid": PRODUCT,
        "bmc": "10.0.0.7",
        "mac1": "3cecef000001",
        "mac2": "3cecef000002",
    }
    joined = answer["joined"]
    assert (joined["tenant"], joined["pool"], joined["site"]) == ("acme", "metal", "berlin")
    assert joined["role"] == "ramdisk"
    assert joined["allowedKinds"] == list(KINDS)
    assert await agent.bench.one("SELECT allowed_kinds FROM node_certs") == list(KINDS)


async def test_known_machine_comes_back_without_an_operator(agent: SiteAgent) -> None:
    """A ramdisk has a new key at each boot; it is the same node, and its last certificate is revoked."""
    first = await agent.lets_in(agent.bench.machine())
    again = await agent.vouches(agent.bench.machine())

    assert again["joined"]["nodeId"] == first["joined"]["nodeId"]
    assert await agent.bench.one("SELECT count(*) FROM nodes") == 1
    assert await agent.bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 1


async def test_always_means_known_machines_too(bench: Bench) -> None:
    """Where the key's row says so, every boot is an operator's to agree to."""
    agent = await SiteAgent(bench).registered(approval="always")
    first = await agent.lets_in(bench.machine())
    again = await agent.vouches(bench.machine())

    assert first["outcome"] == "joined"
    assert again["deferred"]["type"] == "approval"
    assert (await facts(bench))["rekeysNode"] == first["joined"]["nodeId"]


@pytest.mark.case("B79")
@pytest.mark.parametrize("named", [f"mac:{MAC.replace(':', '')}", f"uuid:{PRODUCT}"])
async def test_name_of_a_living_node_sends_the_ramdisk_to_the_waiting_list(
    agent: SiteAgent, named: str
) -> None:
    """A rediscovered host neither overwrites the managed one nor joins by itself; the operator sees which it is."""
    node_id = await _node_with(agent.bench, named)
    before = [dict(r) for r in await agent.bench.fetch("SELECT * FROM nodes")]
    machine = agent.bench.machine()
    waits = await agent.vouches(machine)
    seen = await facts(agent.bench)
    await approve_all(agent.bench)
    answer = await agent.vouches(machine)

    assert waits["deferred"]["type"] == "approval"
    assert seen["linkedNode1"] == f"{node_id} node active"
    assert answer["joined"]["nodeId"] != str(node_id)
    untouched = await agent.bench.fetch("SELECT * FROM nodes WHERE id = $1", node_id)
    assert [dict(r) for r in untouched] == before


@pytest.mark.case("B79")
async def test_living_node_keeps_a_known_ramdisk_waiting(agent: SiteAgent) -> None:
    """Also a machine whose ramdisk is known waits, once its disk has a node of its own."""
    await agent.lets_in(agent.bench.machine())
    await _node_with(agent.bench, f"uuid:{PRODUCT}")
    answer = await agent.vouches(agent.bench.machine())

    assert answer["deferred"]["type"] == "approval"


async def _node_with(bench: Bench, name: str) -> UUID:
    """Add a living node of which a machine's name was proven."""
    node_id = uuid7()
    subject = Subject("machine", f"acme/{name}")
    await bench.fetch(
        "INSERT INTO nodes (id, tenant, pool, role, state, attestor, joined_at, updated_at)"
        " VALUES ($1, 'acme', 'metal', 'node', 'active', 'join-token', now(), now())",
        node_id,
    )
    await bench.fetch(
        "INSERT INTO node_subjects (subject, node_id, kind, value) VALUES ($1, $2, $3, $4)",
        subject.digest, node_id, subject.kind, subject.value,
    )  # fmt: skip
    return node_id


@pytest.mark.case("B77")
async def test_second_machine_with_the_same_uuid_is_refused(agent: SiteAgent) -> None:
    """Boards ship with equal UUIDs: the joined one stays as it is, the newcomer is refused."""
    await agent.lets_in(agent.bench.machine())
    before = [dict(r) for r in await agent.bench.fetch("SELECT * FROM nodes, node_certs")]
    answer = await agent.vouches(agent.bench.machine(), macs=[OTHER_MAC])

    assert answer["outcome"] == "refused"
    assert await last_reason(agent.bench) == "discovery:identity-conflict"
    after = [dict(r) for r in await agent.bench.fetch("SELECT * FROM nodes, node_certs")]
    assert after == before


@pytest.mark.case("B77")
@pytest.mark.parametrize(
    "product_uuid",
    [
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "03000200-0400-0500-0006-000700080009",
    ],
)
async def test_weak_uuid_is_no_name(agent: SiteAgent, product_uuid: str) -> None:
    """Two machines with one placeholder are two nodes, each known by its own MACs."""
    first = await agent.lets_in(agent.bench.machine(), product_uuid=product_uuid, macs=[MAC])
    second = await agent.lets_in(agent.bench.machine(), product_uuid=product_uuid, macs=[OTHER_MAC])
    again = await agent.vouches(agent.bench.machine(), product_uuid=product_uuid, macs=[MAC])

    assert first["joined"]["nodeId"] != second["joined"]["nodeId"]
    assert again["joined"]["nodeId"] == first["joined"]["nodeId"]
    values = await agent.bench.fetch("SELECT DISTINCT value FROM node_subjects")
    assert not [row[0] for row in values if "uuid" in row[0]]


@pytest.mark.case("B81")
async def test_one_mac_in_three_spellings_is_one_machine(agent: SiteAgent) -> None:
    """Tools write MACs as they please; a machine is not several for that."""
    spellings = ("AA-BB-CC-DD-EE-F0".replace("AA", "A8"), "a8bb.ccdd.eef0", "a8:bb:cc:dd:ee:f0")
    ids = set()
    for spelling in spellings:
        answer = await agent.lets_in(agent.bench.machine(), product_uuid=None, macs=[spelling])
        ids.add(answer["joined"]["nodeId"])

    assert len(ids) == 1
    assert await agent.bench.one("SELECT count(*) FROM node_bindings") == 1


@pytest.mark.case("B81")
@pytest.mark.parametrize("macs", [[], [LOCAL_MAC], ["00:00:00:00:00:00"], ["ff:ff:ff:ff:ff:ff"]])
async def test_made_up_mac_is_never_the_only_key(agent: SiteAgent, macs: list[str]) -> None:
    """A locally administered address is anybody's invention, and changes with the boot."""
    answer = await agent.vouches(agent.bench.machine(), product_uuid=None, macs=macs)

    assert answer["outcome"] == "refused"
    assert await last_reason(agent.bench) == "discovery:no-machine"


async def test_uuid_alone_rekeys_nothing_without_an_operator(agent: SiteAgent) -> None:
    """A known machine by its UUID and nothing else may be its neighbour."""
    await agent.lets_in(agent.bench.machine(), macs=[LOCAL_MAC])
    again = await agent.vouches(agent.bench.machine(), macs=[LOCAL_MAC])

    assert again["deferred"]["type"] == "approval"


@pytest.mark.case("B80")
async def test_claimed_mac_and_serial_never_admit(agent: SiteAgent) -> None:
    """Whoever spoofs the MAC and serial of a known machine gets neither its node nor a place in the list."""
    await agent.lets_in(agent.bench.machine())
    thief = agent.bench.machine()
    claims = Claims(product_uuid=PRODUCT, serial="SN-1", macs=(MAC, SECOND_MAC))
    unsigned = canonical({"macs": ["3cecef000001"], "productUuid": PRODUCT, "serial": "SN-1"})
    own = SiteAgent(agent.bench, JwsSigner("k1", Ed25519PrivateKey.generate()))
    reasons = []
    for payload in (b"", unsigned, await own.asserted(thief)):
        request = thief.request(payload, attestor="discovery", role="ramdisk", claims=claims)
        [answer] = await agent.bench.ask(request)
        assert answer["outcome"] == "refused"
        reasons.append(await last_reason(agent.bench))

    assert reasons == ["discovery:malformed", "discovery:malformed", "discovery:bad-signature"]
    assert await agent.bench.one("SELECT count(*) FROM nodes") == 1
    assert await agent.bench.one("SELECT count(*) FROM join_requests WHERE state = 'pending'") == 0


async def test_assertion_counts_once(agent: SiteAgent) -> None:
    """Its nonce is used up for an hour longer than the assertion could come again, and then forgotten."""
    await agent.lets_in(agent.bench.machine())
    machine = agent.bench.machine()
    assertion = await agent.asserted(machine)
    first = await shows(agent.bench, machine, assertion)
    kept = await agent.bench.one(
        "SELECT max(expires_at) - min(watchword.now()) FROM attestation_uses WHERE attestor = 'discovery'"
    )
    await agent.bench.run("UPDATE nodes SET state = 'retired'; DELETE FROM node_bindings")
    await agent.bench.run("DELETE FROM admission_claims; DELETE FROM inbox")
    await agent.bench.run("DELETE FROM node_subjects; DELETE FROM node_certs WHERE is_current")
    await shows(agent.bench, machine, assertion)
    await approve_all(agent.bench)
    second = await shows(agent.bench, machine, assertion)

    assert first["outcome"] == "joined"
    assert timedelta(minutes=65) < kept <= timedelta(minutes=66)
    assert second["outcome"] == "refused"
    assert await last_reason(agent.bench) == "discovery:replayed"


@pytest.mark.case("B74")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("site-key", "k1"),
        ("site", "acme/berlin"),
        ("machine", f"acme/uuid:{PRODUCT}"),
        ("machine", "acme/mac:3cecef000002"),
    ],
)
async def test_ban_of_key_site_or_machine_wins(agent: SiteAgent, kind: str, value: str) -> None:
    """Also over an operator's word that was given before, and over the machine's new key."""
    machine = agent.bench.machine()
    await agent.vouches(machine)
    await approve_all(agent.bench)
    await ban(agent.bench, kind, value)
    approved = await agent.vouches(machine)
    fresh = await agent.vouches(agent.bench.machine())

    assert [approved["outcome"], fresh["outcome"]] == ["refused", "refused"]
    assert await last_reason(agent.bench) == "join:banned"


async def test_other_roles_are_refused_before_the_assertion(agent: SiteAgent) -> None:
    """What a site's agent can vouch for is a ramdisk, and never a node."""
    machine = agent.bench.machine()
    assertion = await agent.asserted(machine)
    answer = await join(agent.bench, machine, DiscoveryProver(lambda _: assertion), role="node")

    assert answer["outcome"] == "refused"
    assert await last_reason(agent.bench) == "join:role-not-listed"


async def test_key_of_a_site_narrows_the_kinds_and_widens_none(bench: Bench) -> None:
    """What a ramdisk may never be told, no row can allow."""
    kinds = ("inventory.refresh", "diag.ping", "agent.update")
    agent = await SiteAgent(bench).registered(kinds=kinds)
    answer = await agent.lets_in(bench.machine())

    assert answer["joined"]["allowedKinds"] == ["inventory.refresh", "diag.ping"]


async def test_agent_of_another_tenant_neither_finds_nor_disturbs(agent: SiteAgent) -> None:
    """The same names, vouched for elsewhere, are another machine: tenants stay apart."""
    await agent.lets_in(agent.bench.machine())
    stranger = SiteAgent(agent.bench, JwsSigner("k2", Ed25519PrivateKey.generate()))
    await stranger.registered(tenant="globex")
    waits = await stranger.vouches(agent.bench.machine())
    seen = await facts(agent.bench)

    assert waits["deferred"]["type"] == "approval"
    assert not [name for name in seen if name.startswith(("linked", "rekeys"))]


async def test_clock_of_a_site_may_be_a_minute_behind(agent: SiteAgent) -> None:
    """An assertion that has just expired by our clock counts; a minute later it does not."""
    machine = agent.bench.machine()
    assertion = await agent.asserted(machine)
    await move_clock(agent.bench, timedelta(minutes=5, seconds=40))
    late = await shows(agent.bench, machine, assertion)
    await move_clock(agent.bench, timedelta(minutes=6, seconds=20))
    too_late = await shows(agent.bench, machine, assertion)

    assert late["deferred"]["type"] == "approval"
    assert too_late["outcome"] == "refused"
