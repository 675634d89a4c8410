"""The journal explains every row of every table, and a row that it does not explain is found."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from tests.support.doorman import Doorman, asks
from tests.support.joins import Bench, Machine, join_bench
from watchword.handlers.attestors.join_token.evidence import encode, parse_token
from watchword.handlers.operators import (
    cloud_accounts,
    images,
    places,
    requests,
    site_keys,
    tokens,
    tpms,
)
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.cloud_accounts import CloudAccountOrder
from watchword.handlers.operators.grants import Created, Grant
from watchword.handlers.operators.images import ImageOrder
from watchword.handlers.operators.requests import Seen
from watchword.handlers.operators.site_keys import SiteKeyOrder
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.rebuild.fold import KEYS
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.keeper import (
    expire_requests,
    open_connection,
    prune_requests,
    take_lease,
)
from watchword.handlers.store.rebuild import Check, check

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")


@pytest_asyncio.fixture
async def fleet(database: str) -> AsyncGenerator[Database]:
    """Yield a database in which operators and machines have done what there is to do."""
    opened = Database(database, application_name="test")
    await places.create_tenant(opened, ADA, "acme", title="Acme, Łódź")
    await places.create_place(opened, ADA, "pool", "acme", "gpu")
    await places.create_place(opened, ADA, "pool", "acme", "web")
    await places.create_place(opened, ADA, "pool", "acme", "gone")
    await places.delete_place(opened, ADA, "pool", "acme", "gone")
    await places.create_place(opened, ADA, "site", "acme", "berlin")
    await places.create_tenant(opened, ADA, "gone")
    await places.delete_tenant(opened, ADA, "gone")
    used = await tokens.create_token(
        opened,
        ADA,
        TokenOrder(tenant="acme", pool="gpu", site="berlin", uses=10, expires_in=timedelta(days=1)),
    )
    revoked = await tokens.create_token(opened, ADA, TokenOrder(tenant="acme", pool="gpu"))
    await tokens.revoke_token(opened, ADA, revoked.row["id"])
    async with join_bench(database, attestors=[Doorman()]) as bench:
        await _anchors(opened)
        await _decisions(opened, bench)
        answers = await bench.ask(*(bench.machine().request(_payload(used)) for _ in range(5)))
        node = answers[0]["joined"]["nodeId"]
        reclaim = await tokens.create_token(
            opened,
            ADA,
            TokenOrder(
                tenant="acme", pool="gpu", site="berlin", expect={"node": node}, allow_reclaim=True
            ),
        )
        again: Machine = bench.machine()
        answers = await bench.ask(again.request(_payload(reclaim)))
        assert answers[0]["joined"]["nodeId"] == node
        await bench.ask(bench.machine().request(_payload(revoked)))  # a refusal changes no table
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def connection(fleet: Database) -> AsyncGenerator[Connection]:
    """Yield a connection to spoil things with."""
    opened = await fleet.connect()
    yield opened
    await opened.close()


async def _anchors(store: Database) -> None:
    """Have operators write down one of each that attestors lean on, and another that is taken back."""
    grant = Grant(tenant="acme", pool="gpu", site="berlin", allowed_kinds=("logs.*",))
    await images.create_image(store, ADA, ImageOrder(grant=grant, expect={"serial": "A1"}))
    image = await images.create_image(store, ADA, ImageOrder(grant=grant, expires_in=None))
    await images.revoke_image(store, ADA, image.row["id"])
    order = SiteKeyOrder(tenant="acme", site="berlin", pool="gpu", public_key=b"a" * 32)
    key = await site_keys.add_site_key(store, ADA, order)
    await site_keys.add_site_key(store, ADA, replace(order, public_key=b"b" * 32))
    await site_keys.revoke_site_key(store, ADA, key["kid"])
    for account in ("111", "222"):
        wanted = CloudAccountOrder(provider="aws", account=account, grant=grant, regions=("eu-1",))
        await cloud_accounts.add_cloud_account(store, ADA, wanted)
    await cloud_accounts.revoke_cloud_account(store, ADA, "aws", "222")
    await tpms.enrol_tpms(store, ADA, {b"e" * 32: "rack 1", b"f" * 32: ""}, grant)
    await tpms.revoke_tpm(store, ADA, b"f" * 32)
    policy = {"pcrs": [7], "banks": ["sha256"], "log": "ignored", "unsafe_first_seen": True}
    await tpms.set_policy(store, ADA, "acme", "gpu", {**policy, "pcrs": [0, 7]})
    await tpms.set_policy(store, ADA, "acme", "gpu", policy)
    value = tpms.ReferenceValue("sha256", 7, "ab" * 32)
    await tpms.change_values(store, ADA, "acme", "gpu", add=[value])
    await tpms.set_policy(store, ADA, "acme", "web", policy)
    await tpms.delete_policy(store, ADA, "acme", "web")


async def _decisions(store: Database, bench: Bench) -> None:
    """Have machines wait, and operators and the keeper decide in every way there is."""
    await bench.ask(asks(bench.machine(), name="expired"))
    keeper = await open_connection(store)
    await keeper.execute("SET watchword.clock_shift = '2 days'")
    tenure = await take_lease(keeper, "k", seconds=60)
    assert tenure is not None
    assert await expire_requests(keeper, tenure, source="/test") == 1
    await keeper.close()
    names = ["joined", "approved", "rejected", "waiting", "changed"]
    machines = {name: bench.machine() for name in names}
    await bench.ask(*[asks(machine, name=name) for name, machine in machines.items()])
    rows = await requests.list_requests(store, RequestFilter(state="pending"))
    seen = {row["facts"]["name"]: Seen(row["id"], row["version"]) for row in rows}
    await requests.approve(store, ADA, [seen["joined"], seen["approved"], seen["changed"]])
    await requests.reject(store, ADA, [seen["rejected"]])
    answers = await bench.ask(
        asks(machines["joined"], name="joined"), asks(machines["changed"], "gpu", "changed")
    )
    assert [answer["outcome"] for answer in answers] == ["joined", "deferred"]


def _payload(token: Created) -> bytes:
    return encode(token.row["id"], parse_token(token.text).secret)


async def test_what_operators_and_machines_did_is_explained(fleet: Database) -> None:
    """If the journal misses anything, the tables could not be made again from it."""
    found = await check(fleet)

    assert found.differences == []
    assert found.problems == []
    assert found.events > 12
    assert found.rows["nodes"] == 6
    assert found.rows["node_certs"] == 7
    assert found.rows["join_requests"] == 6
    lists = ("images", "discovery_sites", "cloud_accounts", "tpm_endorsements", "tpm_policies")
    assert [found.rows[table] for table in lists] == [2, 2, 2, 2, 1]
    assert found.rows["tenants"] == 2


_PLANTED = {
    "tenants": "INSERT INTO tenants (id) VALUES ('planted')",
    "pools": "INSERT INTO pools (tenant, id) VALUES ('root', 'planted')",
    "sites": "INSERT INTO sites (tenant, id) VALUES ('root', 'planted')",
    "tokens": "UPDATE tokens SET uses_left = uses_left + 1 WHERE id = (SELECT min(id) FROM tokens WHERE uses_left < uses_total)",
    "nodes": "UPDATE nodes SET updated_at = updated_at + interval '1 microsecond' WHERE id = (SELECT min(id::text)::uuid FROM nodes)",
    "node_certs": "UPDATE node_certs SET revoked_at = now() WHERE is_current AND node_id = (SELECT min(node_id::text)::uuid FROM node_certs)",
    "admission_claims": "INSERT INTO admission_claims VALUES ('key', sha256('planted'), gen_random_uuid())",
    "node_subjects": "INSERT INTO node_subjects VALUES (sha256('planted'), gen_random_uuid(), 'ek', 'planted')",
    "node_bindings": "INSERT INTO node_bindings VALUES ('tpm', sha256('planted'), gen_random_uuid())",
    "attestation_uses": "INSERT INTO attestation_uses VALUES ('tpm', sha256('planted'), gen_random_uuid())",
    "reclaim_grants": "INSERT INTO reclaim_grants SELECT gen_random_uuid(), id, tenant, 'tpm', sha256('planted'), 'ek', 'planted', 'open',"
    " now(), now(), 'nobody', '' FROM nodes LIMIT 1",
    "bans": "INSERT INTO bans VALUES (sha256('planted'), 'ek', 'planted', now(), 'nobody', '')",
    "join_requests": "UPDATE join_requests SET state = 'approved', version = version + 1 WHERE state = 'pending' AND facts->>'name' = 'waiting'",
    "images": "UPDATE images SET second_fact = 'unsafe_single_factor' WHERE id = (SELECT min(id) FROM images)",
    "discovery_sites": "UPDATE discovery_sites SET public_key = sha256('planted') WHERE revoked_at IS NULL",
    "cloud_accounts": "UPDATE cloud_accounts SET revoked_at = NULL WHERE account = '222'",
    "tpm_endorsements": "INSERT INTO tpm_endorsements VALUES (sha256('planted'), 'acme', 'gpu', NULL, 'node', NULL, '', now(), 'nobody')",
    "tpm_policies": "UPDATE tpm_policies SET policy = '{}'",
    "node_commands": "INSERT INTO node_commands (id, node_id, tenant, kind, payload_sha256, payload_bytes, state, version, reason, enqueued_at,"
    " enqueued_by, why, expires_at) SELECT gen_random_uuid(), id, tenant, 'diag.ping', sha256('planted'), 0, 'queued', 1, NULL, now(), 'nobody', '',"
    " now() + interval '1 h' FROM nodes LIMIT 1",
    "operator_tokens": "INSERT INTO operator_tokens VALUES ('plantedplanted00', sha256('planted'), 'nobody', 'root', 'viewer', NULL, now(), 'nobody', NULL)",
}


def test_every_table_has_a_planted_difference() -> None:
    """A table that nobody spoils is a table that nobody compares."""
    assert set(_PLANTED) == set(KEYS)


@pytest.mark.parametrize("table", sorted(_PLANTED))
async def test_a_row_that_no_event_explains_is_found(
    fleet: Database, connection: Connection, table: str
) -> None:
    """The check is there for the hand in the database and for the bug that forgets an event."""
    await connection.execute(_PLANTED[table])

    (difference,) = (await check(fleet)).differences

    assert difference.table == table
    assert difference.only_in_table == 1
    assert set(json.loads(difference.keys[0])) == set(KEYS[table])


@pytest.mark.parametrize(
    ("table", "deletion"),
    [
        ("node_certs", "DELETE FROM node_certs WHERE revoked_at IS NOT NULL"),
        ("admission_claims", "DELETE FROM admission_claims WHERE kind = 'csr'"),
        ("join_requests", "DELETE FROM join_requests WHERE state = 'approved'"),
        ("tpm_endorsements", "DELETE FROM tpm_endorsements WHERE revoked_at IS NOT NULL"),
        ("sites", "ALTER TABLE sites DISABLE TRIGGER ALL; DELETE FROM sites"),
    ],
)
async def test_a_row_that_is_missing_is_found(
    fleet: Database, connection: Connection, table: str, deletion: str
) -> None:
    """Comparing in one direction only would not see what was deleted."""
    await connection.execute(deletion)

    (difference,) = (await check(fleet)).differences

    assert (difference.table, difference.only_in_table) == (table, 0)
    assert difference.only_in_journal > 0


async def test_an_expired_use_may_be_gone(fleet: Database, connection: Connection) -> None:
    """The keeper prunes them without an event."""
    await connection.execute(
        "INSERT INTO attestation_uses VALUES ('tpm', sha256('old'), gen_random_uuid(), now(), now() - interval '1 hour')"
    )
    assert (await check(fleet)).differences == []


async def test_a_join_that_was_decided_long_ago_may_be_gone(
    fleet: Database, connection: Connection
) -> None:
    """The keeper prunes them without an event; those that somebody may still use stay."""
    await connection.execute("SET watchword.clock_shift = '40 days'")
    tenure = await take_lease(connection, "k", seconds=60)
    assert tenure is not None
    assert await prune_requests(connection, tenure, over_for_s=30 * 86_400) == 3
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET watchword.clock_shift = '40 days'")

    found = await check(fleet)

    assert found.differences == []
    assert found.rows["join_requests"] == 3


async def test_an_event_of_an_unknown_type_is_reported(
    fleet: Database, connection: Connection
) -> None:
    """An event that is passed over in silence makes every later answer a guess."""
    await connection.execute(
        "INSERT INTO journal (event_id, shard, class, type, key, headers, value, private, occurred_at) "
        "VALUES (gen_random_uuid(), 0, 'domain', 'node.painted', 'x', '{}', '{}', '{}', now())"
    )
    found: Check = await check(fleet)
    assert len(found.problems) == 1
    assert "node.painted" in found.problems[0]


async def test_the_check_leaves_nothing_behind(fleet: Database, connection: Connection) -> None:
    """It is run on production, by somebody who is worried already."""
    before = await connection.fetchval("SELECT count(*) FROM pg_class")
    await check(fleet)
    assert await connection.fetchval("SELECT count(*) FROM pg_class") == before
