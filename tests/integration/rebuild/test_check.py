"""The journal explains every row of every table, and a row that it does not explain is found."""

import json
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio

from tests.support.joins import Machine, join_bench
from watchword.handlers.attestors.join_token.evidence import encode, parse_token
from watchword.handlers.operators import places, tokens
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.tokens import CreatedToken, TokenOrder
from watchword.handlers.rebuild.fold import KEYS
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.rebuild import Check, check

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")


@pytest_asyncio.fixture
async def fleet(database: str) -> AsyncGenerator[Database]:
    """Yield a database in which operators and machines have done what there is to do."""
    opened = Database(database, application_name="test")
    await places.create_tenant(opened, ADA, "acme", title="Acme, Łódź")
    await places.create_place(opened, ADA, "pool", "acme", "gpu")
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
    async with join_bench(database) as bench:
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


def _payload(token: CreatedToken) -> bytes:
    return encode(token.row["id"], parse_token(token.text).secret)


async def test_what_operators_and_machines_did_is_explained(fleet: Database) -> None:
    """If the journal misses anything, the tables could not be made again from it."""
    found = await check(fleet)

    assert found.differences == []
    assert found.problems == []
    assert found.events > 12
    assert found.rows["nodes"] == 5
    assert found.rows["node_certs"] == 6
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
    "bans": "INSERT INTO bans VALUES (sha256('planted'), 'ek', 'planted', now(), 'nobody', '')",
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
