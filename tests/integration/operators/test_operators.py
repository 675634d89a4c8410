"""What operators do, on a real PostgreSQL."""

import json
from base64 import b64decode
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from watchword.handlers.attestors.join_token.evidence import parse_token
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import nodes, places, refusals, tokens
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.nodes import NodeFilter
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.rows import as_row

ADA = Actor("ada", "a test")
ORDER = TokenOrder(tenant="acme", pool="gpu")

pytestmark = pytest.mark.postgres


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def sql(database: str) -> AsyncGenerator[Connection]:
    connection = await asyncpg.connect(database, server_settings={"search_path": "watchword"})
    yield connection
    await connection.close()


@pytest.fixture
async def acme(store: Database) -> None:
    await places.create_tenant(store, ADA, "acme", title="Acme")
    await places.create_place(store, ADA, "pool", "acme", "gpu")
    await places.create_place(store, ADA, "site", "acme", "berlin")


async def add_node(sql: Connection, **columns: object) -> str:
    node = str(uuid4())
    values = {"tenant": "acme", "pool": "gpu", "site": None, "state": "active"} | columns
    await sql.execute(
        "INSERT INTO nodes (id, tenant, pool, site, role, state, attestor, joined_at, updated_at)"
        " VALUES ($1, $2, $3, $4, 'node', $5, 'join-token', now(), now())",
        node,
        *values.values(),
    )
    return node


async def add_refusal(sql: Connection, reason: str, *, tenant: str = "root") -> None:
    await sql.execute(
        "INSERT INTO refusals (type, attestor, reason, tenant, request_sha256, topic, partition,"
        " \"offset\", worker, published, occurred_at) VALUES ('refused', 'join-token', $1::text, $2,"
        " sha256(convert_to($1::text, 'UTF8')), 'join.requests', 0, 0, 'w', true, clock_timestamp())",
        reason,
        tenant,
    )


@pytest.mark.usefixtures("acme")
async def test_every_act_is_audited_and_journalled_with_the_row_it_made(
    store: Database, sql: Connection
) -> None:
    """The journal is what a rebuild has; a row that it does not reproduce is lost."""
    created = await tokens.create_token(store, ADA, ORDER)
    await tokens.revoke_token(store, ADA, created.row["id"])

    entries = await sql.fetch("SELECT * FROM journal ORDER BY seq")

    assert [e["type"] for e in entries] == [
        "tenant.created",
        "pool.created",
        "site.created",
        "token.created",
        "token.revoked",
    ]
    assert [r["action"] for r in await sql.fetch("SELECT * FROM audit_log ORDER BY id")] == [
        e["type"] for e in entries
    ]
    assert {e["topic"] for e in entries} == {None}
    assert entries[4]["key"] == created.row["id"].encode()
    kept = json.loads(entries[4]["private"])["row"]
    assert kept == as_row((await sql.fetch("SELECT * FROM tokens"))[0])
    assert b64decode(kept["secret_sha256"]) == sha256(parse_token(created.text).secret).digest()
    assert kept["expires_at"] - kept["created_at"] == 86_400_000_000


@pytest.mark.usefixtures("acme")
async def test_a_tokens_secret_is_stored_nowhere(store: Database, sql: Connection) -> None:
    """Whoever reads the database must not be able to join."""
    created = await tokens.create_token(store, ADA, ORDER)
    secret = created.text.rpartition(".")[2]

    dump = [
        [bytes(v) if isinstance(v, bytes) else v for v in row.values()]
        for table in ("tokens", "journal", "audit_log")
        for row in await sql.fetch(f"SELECT * FROM {table}")  # noqa: S608 - our own names
    ]

    assert secret not in repr(dump)
    assert secret not in repr(created)
    assert "secret_sha256" not in (await tokens.list_tokens(store))[0]


@pytest.mark.usefixtures("acme")
async def test_what_is_in_use_is_not_deleted(store: Database, sql: Connection) -> None:
    """A node without its pool would be nowhere."""
    await add_node(sql, site="berlin")

    for delete in (
        places.delete_tenant(store, ADA, "acme"),
        places.delete_place(store, ADA, "pool", "acme", "gpu"),
        places.delete_place(store, ADA, "site", "acme", "berlin"),
        places.delete_tenant(store, ADA, "root"),
    ):
        with pytest.raises(Conflict):
            await delete

    assert await sql.fetchval("SELECT count(*) FROM audit_log") == 3


@pytest.mark.usefixtures("acme")
async def test_who_cannot_delete_a_place_is_told_what_uses_it(
    store: Database, sql: Connection
) -> None:
    """Otherwise they would look through every table."""
    await add_node(sql, site="berlin")
    await add_node(sql, state="retired")
    await tokens.create_token(store, ADA, ORDER)
    await sql.execute(
        "INSERT INTO images (id, secret_sha256, tenant, pool, site, role, second_fact, created_by)"
        " VALUES ('aaaaaaaaaaaaaaaa', sha256(''), 'acme', 'gpu', 'berlin', 'node', 'approval', 'test')"
    )

    await sql.execute(
        "INSERT INTO join_requests (attestor, subject, csr_sha256, id, state, snapshot, tenant, pool, role, request_id, requested_at,"
        " expires_at) VALUES ('image', sha256(''), sha256(''), gen_random_uuid(), 'pending', '{}', 'acme', 'gpu', 'node', '', now(), now())"
    )

    said = r"nodes \(1\), nodes that are gone \(1\), tokens \(1\), images \(1\), joins that wait \(1\)$"
    with pytest.raises(Conflict, match=said):
        await places.delete_place(store, ADA, "pool", "acme", "gpu")
    with pytest.raises(Conflict, match=r"nodes \(1\), images \(1\)$"):
        await places.delete_place(store, ADA, "site", "acme", "berlin")
    with pytest.raises(Conflict, match=r"pools \(1\), sites \(1\)$"):
        await places.delete_tenant(store, ADA, "acme")


@pytest.mark.usefixtures("acme")
async def test_what_is_free_is_deleted_and_the_deletion_journalled(
    store: Database, sql: Connection
) -> None:
    """A rebuild has to take the row away again."""
    await places.delete_place(store, ADA, "pool", "acme", "gpu")
    await places.delete_place(store, ADA, "site", "acme", "berlin")
    await places.delete_tenant(store, ADA, "acme")

    (last,) = await sql.fetch("SELECT * FROM journal ORDER BY seq DESC LIMIT 1")
    assert last["type"] == "tenant.deleted"
    assert json.loads(last["private"])["row"]["id"] == "acme"
    assert [row["id"] for row in await places.list_tenants(store)] == ["root"]
    with pytest.raises(NotFound):
        await places.delete_tenant(store, ADA, "acme")


@pytest.mark.usefixtures("acme")
async def test_names_that_are_taken_or_missing_are_told_apart(store: Database) -> None:
    """Scripts decide by the exit code."""
    with pytest.raises(Conflict):
        await places.create_tenant(store, ADA, "acme")
    with pytest.raises(Conflict):
        await places.create_place(store, ADA, "pool", "acme", "gpu")
    with pytest.raises(NotFound):
        await places.create_place(store, ADA, "pool", "nobody", "gpu")
    with pytest.raises(NotFound, match="pool acme/cpu"):
        await tokens.create_token(store, ADA, TokenOrder(tenant="acme", pool="cpu"))
    with pytest.raises(NotFound, match="site acme/paris"):
        await tokens.create_token(store, ADA, TokenOrder(tenant="acme", pool="gpu", site="paris"))
    with pytest.raises(NotFound):
        await tokens.revoke_token(store, ADA, "0" * 16)


@pytest.mark.usefixtures("acme")
async def test_a_revoked_token_is_listed_only_on_request_and_stays_revoked(
    store: Database,
) -> None:
    """The first revocation is the one that counts in the audit log."""
    created = await tokens.create_token(store, ADA, ORDER)
    await tokens.revoke_token(store, ADA, created.row["id"])

    assert await tokens.list_tokens(store, tenant="acme") == []
    (found,) = await tokens.list_tokens(store, tenant="acme", spent_too=True)
    assert found["state"] == "revoked"
    with pytest.raises(Conflict):
        await tokens.revoke_token(store, ADA, created.row["id"])


@pytest.mark.parametrize(
    "order",
    [
        TokenOrder(tenant="Acme", pool="gpu"),
        TokenOrder(tenant="acme", pool="gpu", uses=0),
        TokenOrder(tenant="acme", pool="gpu", expires_in=timedelta(0)),
        TokenOrder(tenant="acme", pool="gpu", expect={"color": "red"}),
        TokenOrder(tenant="acme", pool="gpu", expect={"serial": "a\x00b"}),
        TokenOrder(tenant="acme", pool="gpu", expect={"node": "seven"}),
        TokenOrder(tenant="acme", pool="gpu", allowed_kinds=("*",)),
    ],
)
async def test_an_order_without_sense_makes_no_token(store: Database, order: TokenOrder) -> None:
    """A token with a filter that can never match locks a machine out."""
    with pytest.raises(BadArgument):
        await tokens.create_token(store, ADA, order)


@pytest.mark.usefixtures("acme")
async def test_pages_of_nodes_meet_without_a_gap(store: Database, sql: Connection) -> None:
    """A fleet does not fit on one page."""
    made = sorted([await add_node(sql) for _ in range(7)])

    seen: list[str] = []
    after: str | None = None
    while page := await nodes.list_nodes(store, NodeFilter(tenant="acme", after=after), limit=3):
        seen += [str(row["id"]) for row in page]
        after = seen[-1]

    assert seen == made
    assert await nodes.list_nodes(store, NodeFilter(state="banned")) == []


@pytest.mark.usefixtures("acme")
async def test_a_node_is_shown_with_all_that_belongs_to_it(
    store: Database, sql: Connection
) -> None:
    """An operator looks once, in an incident."""
    node = await add_node(sql)
    await sql.execute(
        "INSERT INTO node_bindings (attestor, subject, node_id) VALUES ('tpm', sha256('ek'), $1)",
        node,
    )

    found = await nodes.show_node(store, node)

    assert found["bindings"] == [{"attestor": "tpm", "subject": sha256(b"ek").digest()}]
    assert found["certificates"] == []
    with pytest.raises(NotFound):
        await nodes.show_node(store, str(uuid4()))
    with pytest.raises(BadArgument):
        await nodes.show_node(store, "seven")


async def test_refusals_are_found_by_what_is_known_of_them(
    store: Database, sql: Connection
) -> None:
    """The SIEM may be down when it matters."""
    for reason in ("expired", "unknown-token", "expired"):
        await add_refusal(sql, reason)
    since = datetime.now(UTC) - timedelta(hours=1)

    def wanted(**fields: Any) -> refusals.RefusalFilter:  # noqa: ANN401 - the filter's own
        return refusals.RefusalFilter(since=since, **fields)

    assert len(await refusals.list_refusals(store, wanted())) == 3
    assert len(await refusals.list_refusals(store, wanted(reason="expired"))) == 2
    assert await refusals.list_refusals(store, wanted(tenant="acme")) == []
    digest = sha256(b"unknown-token").digest()
    assert len(await refusals.list_refusals(store, wanted(request_sha256=digest))) == 1

    first = await refusals.list_refusals(store, wanted(), limit=2)
    rest = await refusals.list_refusals(
        store, wanted(before=(first[-1]["occurred_at"], first[-1]["id"]))
    )
    assert len({row["id"] for row in first + rest}) == 3


async def test_the_tail_passes_over_no_refusal_whose_transaction_ends_late(
    store: Database, sql: Connection
) -> None:
    """Ids are drawn before commits: a tail by id loses what commits behind a later one."""
    tail = refusals.tail_refusals(store, refusals.RefusalFilter(datetime.now(UTC)))
    assert await anext(tail) == []
    late = sql.transaction()
    await late.start()
    await add_refusal(sql, "expired")
    async with store.transaction() as other:
        await add_refusal(other, "unknown-token")

    assert [row["reason"] for row in await anext(tail)] == ["unknown-token"]
    await late.commit()
    assert [row["reason"] for row in await anext(tail)] == ["expired"]
    assert await anext(tail) == []
    await tail.aclose()


@pytest.mark.parametrize("who", ["", "x" * 201, "ada\nroot did it"])
def test_nobody_acts_without_a_name(who: str) -> None:
    """The audit log is read line by line."""
    with pytest.raises(BadArgument):
        Actor(who)
