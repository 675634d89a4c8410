"""Purging: what is known of a machine goes, what keeps it from coming back twice stays, and the journal still explains it."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, join_bench
from tests.support.renewals import explained, reasons
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import bans, purges, reclaims
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.purges import Wanted
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.standing import SeenNode, change_nodes
from watchword.handlers.store.connection import Database
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a request for erasure")
SECRETLY = "serial-of-adas-laptop"
EK = Subject("ek", SECRETLY)
SCRIPT = Script(
    bind="b1",
    hardware_key=SECRETLY,
    subjects=((EK.kind, EK.value),),
    uses=(("u", None),),
    rekey=True,
)


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    async with join_bench(database, attestors=[Scripted("scripted")]) as opened:
        await opened.place("acme", "web")
        yield opened


async def join(bench: Bench, script: Script, machine: Any = None) -> dict[str, Any]:  # noqa: ANN401 - a machine
    by = machine or bench.machine()
    claims = Claims(serial=SECRETLY)
    [answer] = await bench.ask(by.request(script.encode(), attestor="scripted", claims=claims))
    return answer


async def gone(bench: Bench, store: Database) -> UUID:
    """Return a node that joined, was granted to another proof, and was deleted."""
    node = UUID((await join(bench, SCRIPT))["joined"]["nodeId"])
    order = ReclaimOrder(node=node, attestor="scripted", subject=Subject("ek", f"{SECRETLY}-2"))
    await reclaims.grant_reclaim(store, ADA, order)
    await change_nodes(store, ADA, "delete", [SeenNode(node)])
    return node


async def dump(bench: Bench) -> str:
    """Return everything that any table of ours has, in text; bytes also as they are."""
    tables = await bench.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'watchword' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    found: list[str] = []
    for (table,) in tables:
        for row in await bench.fetch(f'SELECT * FROM "{table}"'):  # noqa: S608 - a name from the catalogue
            found += [
                value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                for value in row.values()
            ]
    return "\n".join(found)


async def test_nothing_of_the_machine_is_left_and_the_journal_explains_the_rest(
    bench: Bench, store: Database, database: str
) -> None:
    """Not its name, its key, its certificate or what it was granted by: in no table and in no event."""
    node = await gone(bench, store)
    assert SECRETLY in await dump(bench)
    found = await purges.find(store, Wanted(nodes=[node]))
    before = await dump(bench)
    counts = await purges.purge(store, ADA, found.nodes)

    assert (found.counts["subjects"], found.counts["certificates"]) == (1, 1)
    assert counts["nodes"] == 1
    assert counts["events"] >= 2
    assert SECRETLY in before  # the dry run has changed nothing
    assert SECRETLY not in await dump(bench)
    assert await bench.one("SELECT der FROM node_certs") == b""
    audit = await bench.fetch("SELECT who, why FROM audit_log WHERE action = 'node.purged'")
    assert [tuple(row) for row in audit] == [("ada", "a request for erasure")]
    await explained(database)


async def test_what_was_used_up_banned_or_admitted_stays_so(
    bench: Bench, store: Database, database: str
) -> None:
    """A purge is no way back in: for the same evidence, the same CSR or a banned chip."""
    machine = bench.machine()
    node = UUID((await join(bench, SCRIPT, machine))["joined"]["nodeId"])
    await bans.add_bans(store, ADA, [EK])
    await change_nodes(store, ADA, "delete", [SeenNode(node)])
    found = await purges.find(store, Wanted(nodes=[node]))
    await purges.purge(store, ADA, found.nodes)

    assert await bench.one("SELECT value FROM bans") == "purged"
    assert SECRETLY not in await dump(bench)
    await join(bench, SCRIPT.but(uses=()))
    await join(bench, SCRIPT.but(subjects=(), hardware_key=None))
    await join(bench, SCRIPT.but(subjects=(), hardware_key=None, uses=()), machine)
    assert await reasons(bench) == ["join:banned", "scripted:replayed", "join:csr-reused"]
    await explained(database)
    await bans.remove_bans(store, ADA, [EK])
    assert (await join(bench, SCRIPT.but(uses=())))["outcome"] == "joined"


async def test_only_what_is_gone_is_purged_and_only_as_it_was_seen(
    bench: Bench, store: Database
) -> None:
    """A living node would lose what it is known by; and between the counts and the act somebody may have acted."""
    living = UUID((await join(bench, SCRIPT))["joined"]["nodeId"])
    with pytest.raises(Conflict, match="delete it first"):
        await purges.find(store, Wanted(nodes=[living]))
    with pytest.raises(Conflict, match="delete it first"):
        await purges.find(store, Wanted(subject=EK))
    with pytest.raises(Conflict):
        await purges.purge(store, ADA, [SeenNode(living)])
    with pytest.raises(NotFound):
        await purges.find(store, Wanted(tenant="acme"))
    with pytest.raises(BadArgument):
        await purges.find(store, Wanted())

    await change_nodes(store, ADA, "retire", [SeenNode(living)])
    [seen] = (await purges.find(store, Wanted(tenant="acme"))).nodes
    await change_nodes(store, ADA, "delete", [SeenNode(living)])
    with pytest.raises(Conflict, match="has changed"):
        await purges.purge(store, ADA, [seen])
    with pytest.raises(BadArgument, match="why"):
        await purges.purge(store, Actor("ada"), [SeenNode(living)])


async def test_each_filter_finds_the_node_once(bench: Bench, store: Database) -> None:
    """By tenant, age, subject, or a digest of a key; what is purged already is not found again."""
    node = await gone(bench, store)
    other = bench.machine()
    kept = UUID((await join(bench, Script(bind="b2"), other))["joined"]["nodeId"])
    await change_nodes(store, ADA, "retire", [SeenNode(kept)])
    spki: bytes = await bench.one("SELECT spki_sha256 FROM node_certs WHERE node_id = $1", node)

    async def ids(**wanted: Any) -> list[UUID]:  # noqa: ANN401 - values of any field
        return [seen.id for seen in (await purges.find(store, Wanted(**wanted))).nodes]

    assert await ids(tenant="acme") == sorted((node, kept))
    assert await ids(older_than=timedelta(0)) == sorted((node, kept))
    assert await ids(subject=EK) == [node]
    assert await ids(digest=EK.digest) == [node]
    assert await ids(digest=spki) == [node]
    assert await ids(digest=sha256(SECRETLY.encode()).digest()) == [node]
    with pytest.raises(NotFound):
        await ids(tenant="globex")
    with pytest.raises(NotFound):
        await ids(older_than=timedelta(days=1))
    await purges.purge(store, ADA, [SeenNode(node)])
    assert await ids(tenant="acme") == [kept]
