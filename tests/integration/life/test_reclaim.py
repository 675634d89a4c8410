"""An operator lets a machine have its node back: that machine, that node, once, and not for ever."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, join_bench, keys
from tests.support.renewals import explained, reasons, types
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import reclaims
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.store.connection import Database

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")
OLD = Script(
    bind="b1", hardware_key="h1", uses=(("u", None),), subjects=(("ek", "e1"),), rekey=True
)
"""What the machine was: a chip that is bound for good, and a proof that counts once."""
NEW = Script(bind="b2", uses=(("u", None),), subjects=(("ek", "e2"),))
"""After its board was replaced: another chip, no hardware key, and the same proof that has counted."""


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    attestors = [Scripted("scripted"), Scripted("other"), Scripted("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors) as opened:
        await opened.place("acme", "web")
        yield opened


async def join(bench: Bench, script: Script, attestor: str = "scripted") -> dict[str, Any]:
    [answer] = await bench.ask(bench.machine().request(script.encode(), attestor=attestor))
    return answer


def order(node: str, **changes: Any) -> ReclaimOrder:  # noqa: ANN401 - values of any field
    made = ReclaimOrder(node=UUID(node), attestor="scripted", subject=Subject("ek", "e2"))
    return replace(made, **changes)


async def test_grant_gives_the_node_to_the_proof_that_was_named_once(
    bench: Bench, store: Database, database: str
) -> None:
    """A board is replaced: the machine stays the node, and the old board is nothing any more."""
    node = (await join(bench, OLD))["joined"]["nodeId"]
    assert (await join(bench, NEW))["outcome"] == "refused"
    row = await reclaims.grant_reclaim(store, ADA, order(node))
    answer = await join(bench, NEW)

    assert answer["joined"]["nodeId"] == node
    assert await bench.one("SELECT count(*) FROM node_bindings") == 1
    assert await bench.one("SELECT hardware_key FROM nodes") is None
    assert await bench.one("SELECT state FROM reclaim_grants WHERE id = $1", row["id"]) == "used"
    assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 1
    # Once: neither the old chip nor the new one has another.
    assert (await join(bench, NEW))["outcome"] == "refused"
    old = await join(bench, OLD.but(uses=()))
    assert old["joined"]["nodeId"] != node
    assert await reasons(bench) == ["scripted:replayed", "scripted:bound-elsewhere"]
    assert await types(bench) == [
        "node.joined",
        "security.join.refused",
        "node.reclaim.granted",
        "node.joined",
        "security.join.refused",
        "node.joined",
    ]
    await explained(database)


@pytest.mark.parametrize(
    ("script", "attestor"),
    [
        pytest.param(NEW.but(subjects=(("ek", "e3"),)), "scripted", id="another subject"),
        pytest.param(NEW, "other", id="another attestor"),
        pytest.param(NEW.but(tenant="globex"), "scripted", id="another tenant"),
        pytest.param(NEW.but(way="refuse", detail="no"), "scripted", id="evidence that fails"),
    ],
)
async def test_grant_is_used_by_nothing_but_what_it_names(
    bench: Bench, store: Database, script: Script, attestor: str, database: str
) -> None:
    """The operator named a proof; everything else is judged as if there were no grant."""
    await bench.place("globex", "web")
    node = (await join(bench, OLD))["joined"]["nodeId"]
    await reclaims.grant_reclaim(store, ADA, order(node))
    answer = await join(bench, script, attestor)

    assert answer["outcome"] == "refused" or answer["joined"]["nodeId"] != node
    assert await bench.one("SELECT state FROM reclaim_grants") == "open"
    assert await bench.one("SELECT generation FROM nodes WHERE id = $1", UUID(node)) == 1
    await explained(database)


async def test_grant_that_is_late_or_taken_back_is_none(
    bench: Bench, store: Database, database: str
) -> None:
    """What an operator allowed last week is not what they would allow now."""
    node = (await join(bench, OLD))["joined"]["nodeId"]
    late = await reclaims.grant_reclaim(store, ADA, order(node))
    await bench.fetch("UPDATE reclaim_grants SET expires_at = now() WHERE id = $1", late["id"])
    assert (await join(bench, NEW))["outcome"] == "refused"
    await bench.fetch(
        "UPDATE reclaim_grants SET expires_at = $2 WHERE id = $1", late["id"], late["expires_at"]
    )
    await reclaims.revoke_reclaim(store, ADA, late["id"])
    assert (await join(bench, NEW))["outcome"] == "refused"
    with pytest.raises(Conflict):
        await reclaims.revoke_reclaim(store, ADA, late["id"])
    with pytest.raises(NotFound):
        await reclaims.revoke_reclaim(store, ADA, UUID(int=1))

    assert await reclaims.list_reclaims(store) == []
    assert [row["state"] for row in await reclaims.list_reclaims(store, all_too=True)] == [
        "revoked"
    ]
    await explained(database)


async def test_grant_overrides_that_nodes_rows_alone(
    bench: Bench, store: Database, database: str
) -> None:
    """What another node is bound to, or has used up, is not the operator's to give to this one."""
    node = (await join(bench, OLD))["joined"]["nodeId"]
    await join(bench, Script(bind="b9", uses=(("w", None),)))
    await reclaims.grant_reclaim(store, ADA, order(node))
    bound = await join(bench, NEW.but(bind="b9"))
    used = await join(bench, NEW.but(uses=(("w", None),)))

    assert (bound["outcome"], used["outcome"]) == ("refused", "refused")
    assert await reasons(bench) == ["scripted:bound-elsewhere", "scripted:replayed"]
    assert await bench.one("SELECT state FROM reclaim_grants") == "open"
    await explained(database)


@pytest.mark.parametrize("verb", ["evict", "retire", "delete"])
async def test_retired_node_comes_back_by_a_grant_and_a_deleted_one_does_not(
    bench: Bench, store: Database, database: str, verb: Verb
) -> None:
    """Retiring the wrong machine must be possible to mend; deleting is for good."""
    node = (await join(bench, OLD))["joined"]["nodeId"]
    await reclaims.grant_reclaim(store, ADA, order(node))
    await change_nodes(store, ADA, verb, [SeenNode(UUID(node))])
    answer = await join(bench, NEW)

    if verb == "delete":
        assert answer["outcome"] == "refused"
        with pytest.raises(Conflict):
            await reclaims.grant_reclaim(store, ADA, order(node))
    else:
        assert answer["joined"]["nodeId"] == node
        assert await bench.one("SELECT state FROM nodes") == "adopting"
    await explained(database)


async def test_grant_works_for_attestors_with_their_own_sql(
    bench: Bench, store: Database, database: str
) -> None:
    """Their joins have a transaction of their own, and the same rules."""
    node = (await join(bench, OLD, "lane"))["joined"]["nodeId"]
    await reclaims.grant_reclaim(store, ADA, order(node, attestor="lane"))

    assert (await join(bench, NEW, "lane"))["joined"]["nodeId"] == node
    await explained(database)


async def test_one_grant_is_one_reclaim_however_many_ask(database: str, store: Database) -> None:
    """Two workers and a batch full of the same machine: one of the requests takes it."""
    crypto = keys()
    async with (
        join_bench(database, crypto=crypto, attestors=[Scripted("scripted")]) as one,
        join_bench(database, crypto=crypto, attestors=[Scripted("scripted")], worker="w1") as two,
    ):
        await one.place("acme", "web")
        node = (await join(one, OLD))["joined"]["nodeId"]
        await reclaims.grant_reclaim(store, ADA, order(node))

        async def ask(bench: Bench) -> list[dict[str, Any]]:
            asked = [bench.machine().request(NEW.encode(), attestor="scripted") for _ in range(4)]
            return await bench.ask(*asked)

        told = await asyncio.gather(ask(one), ask(two))

        outcomes = [answer["outcome"] for answers in told for answer in answers]
        assert outcomes.count("joined") == 1
        assert await one.one("SELECT generation FROM nodes") == 2
        assert set(await reasons(one)) <= {"scripted:replayed", "scripted:bound-elsewhere"}
        await explained(database)


async def test_orders_that_make_no_sense_are_refused(bench: Bench, store: Database) -> None:
    """A mistake of the operator's is told to the operator, and nothing is written."""
    node = (await join(bench, OLD))["joined"]["nodeId"]
    for wrong in (
        order(node, attestor="Tpm"),
        order(node, subject=Subject("ek", "")),
        order(node, expires_in=timedelta(days=31)),
        order(node, expires_in=timedelta(0)),
    ):
        with pytest.raises(BadArgument):
            await reclaims.grant_reclaim(store, ADA, wrong)
    with pytest.raises(BadArgument):
        await reclaims.grant_reclaim(store, Actor("ada"), order(node))
    with pytest.raises(NotFound):
        await reclaims.grant_reclaim(store, ADA, order("0190163d-8694-739b-aea5-966c26f8ad91"))

    assert await bench.one("SELECT count(*) FROM reclaim_grants") == 0
