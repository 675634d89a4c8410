"""What operators make of nodes: evicted, retired, deleted, banned; and what that stops."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, Machine, join_bench, keys
from tests.support.renewals import Node, explained, joined, reasons, renewed, types
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import bans, nodes
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.nodes import NodeFilter
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.store.connection import Database

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


def seen(*found: Node) -> list[SeenNode]:
    return [SeenNode(UUID(node.id)) for node in found]


async def scripted(bench: Bench, script: Script) -> tuple[Machine, dict[str, Any]]:
    """Have a machine join by a script."""
    await bench.place("acme", "web")
    machine = bench.machine()
    [answer] = await bench.ask(machine.request(script.encode(), attestor="scripted"))
    return machine, answer


@pytest.mark.parametrize(
    ("verb", "state"), [("evict", "evicted"), ("retire", "retired"), ("delete", "deleted")]
)
async def test_node_that_is_put_out_renews_no_more(
    database: str, store: Database, verb: Verb, state: str
) -> None:
    """A command that takes effect when the certificate ends in a week is no command."""
    async with join_bench(database) as bench:
        node, other = await joined(bench), await joined(bench)
        node = await renewed(bench, node)
        [row] = await change_nodes(store, ADA, verb, seen(node))
        [answer] = await bench.ask(node.renewal(bench.machine()))

        assert (row["state"], row["version"]) == (state, 3)
        assert answer["outcome"] == "refused"
        assert await reasons(bench) == ["renew:node-state"]
        assert (await types(bench))[3:6] == [
            f"node.{state}",
            "node.certificate.revoked",
            "node.certificate.revoked",
        ]
        who = await bench.fetch("SELECT who, why FROM audit_log WHERE action = $1", f"node.{verb}")
        assert [tuple(row) for row in who] == [("ada", "a test")]
        await renewed(bench, other)
        await explained(database)


async def test_retired_node_loses_its_bindings_and_keeps_what_it_used_up(
    database: str, store: Database
) -> None:
    """Its hardware may join again as another node; a proof that counts once has counted."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(
            tenant="acme", pool="web", bind="b1", hardware_key="h1", uses=(("u", None),)
        )
        machine, answer = await scripted(bench, script)
        node = Node.of(machine, answer)
        await change_nodes(store, ADA, "retire", seen(node))

        assert await bench.one("SELECT count(*) FROM node_bindings") == 0
        assert await bench.one("SELECT count(*) FROM attestation_uses") == 1
        _, again = await scripted(bench, script)
        _, anew = await scripted(bench, script.but(uses=()))
        assert again["outcome"] == "refused"
        assert await reasons(bench) == ["scripted:replayed"]
        assert anew["joined"]["nodeId"] != node.id
        await explained(database)


async def test_evicted_node_comes_back_by_attesting_again(database: str, store: Database) -> None:
    """An eviction is for a certificate that cannot be trusted, not for the machine."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(tenant="acme", pool="web", bind="b1", rekey=True)
        machine, answer = await scripted(bench, script)
        node = Node.of(machine, answer)
        await change_nodes(store, ADA, "evict", seen(node))
        machine, answer = await scripted(bench, script)

        assert answer["joined"]["nodeId"] == node.id
        assert await bench.one("SELECT state FROM nodes") == "adopting"
        await renewed(bench, Node.of(machine, answer))
        await explained(database)


async def test_second_operator_changes_nothing(database: str, store: Database) -> None:
    """Who acts on what is no longer so, has to look again; half of a list is never done."""
    async with join_bench(database) as bench:
        first, second = await joined(bench), await joined(bench)
        await change_nodes(store, ADA, "evict", seen(first))
        for wrong in (
            seen(second, first),
            [SeenNode(UUID(second.id), 7)],
        ):
            with pytest.raises(Conflict):
                await change_nodes(store, ADA, "evict", wrong)
        with pytest.raises(NotFound):
            await change_nodes(store, ADA, "evict", [*seen(second), SeenNode(UUID(int=1))])
        with pytest.raises(BadArgument):
            await change_nodes(store, Actor("ada"), "evict", seen(second))

        assert await bench.one("SELECT count(*) FROM nodes WHERE state = 'adopting'") == 1
        await renewed(bench, second)


async def test_two_operators_with_one_list_in_both_orders_end(
    database: str, store: Database
) -> None:
    """Locks are taken in one order, whatever the list's: nobody waits for ever, and one of them wins."""
    async with join_bench(database) as bench:
        found = [await joined(bench) for _ in range(6)]
        done = await asyncio.gather(
            change_nodes(store, ADA, "retire", seen(*found)),
            change_nodes(store, Actor("bob", "too"), "retire", seen(*reversed(found))),
            return_exceptions=True,
        )

        assert sorted(isinstance(one, Conflict) for one in done) == [False, True]
        assert await bench.one("SELECT count(*) FROM nodes WHERE state = 'retired'") == 6
        await explained(database)


async def test_ban_follows_the_subject_to_any_node(database: str, store: Database) -> None:
    """A machine that is banned must not come back as another node, by another way, with another key."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(tenant="acme", pool="web", subjects=(("ek", "e1"),))
        machine, answer = await scripted(bench, script)
        _, other = await scripted(bench, script.but(subjects=(("ek", "e2"),)))
        done = await bans.add_bans(store, ADA, [Subject("ek", "e1")])
        [renewal] = await bench.ask(Node.of(machine, answer).renewal(bench.machine()))
        _, again = await scripted(bench, script)

        assert [str(row["id"]) for row in done.nodes] == [answer["joined"]["nodeId"]]
        assert (renewal["outcome"], again["outcome"]) == ("refused", "refused")
        assert await reasons(bench) == ["renew:node-state", "join:banned"]
        states = await bench.fetch("SELECT id::text, state FROM nodes")
        assert dict(map(tuple, states)) == {
            answer["joined"]["nodeId"]: "banned",
            other["joined"]["nodeId"]: "adopting",
        }
        with pytest.raises(Conflict):
            await bans.add_bans(store, ADA, [Subject("ek", "e1")])
        await explained(database)


@pytest.mark.parametrize("kind", ["token", "site", "spki", "certificate", "hardware-key"])
async def test_ban_finds_nodes_by_what_stands_in_columns(
    database: str, store: Database, kind: str
) -> None:
    """Not every subject is one that an attestor named."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(tenant="acme", pool="web", hardware_key="h1")
        await bench.place("acme", "web", "berlin")
        if kind == "hardware-key":
            machine, answer = await scripted(bench, script)
            node = Node.of(machine, answer)
        else:
            node = await joined(bench, site="berlin")
        query = {
            "token": "SELECT token_id FROM nodes",
            "site": "SELECT 'acme/berlin'",
            "spki": "SELECT encode(spki_sha256, 'hex') FROM node_certs",
            "certificate": "SELECT encode(tbs_sha256, 'hex') FROM node_certs",
            "hardware-key": "SELECT hardware_key FROM nodes",
        }[kind]
        value = await bench.one(query)
        done = await bans.add_bans(store, ADA, [Subject(kind, value)])

        assert [str(row["id"]) for row in done.nodes] == [node.id]
        assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 0
        await explained(database)


async def test_ban_of_a_node_leaves_what_others_share(database: str, store: Database) -> None:
    """Banning one machine must not ban all that joined by the same token, or have the same image."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(tenant="acme", pool="web", subjects=(("ek", "e1"), ("image", "i1")))
        machine, answer = await scripted(bench, script)
        twin = script.but(subjects=(("ek", "e2"), ("batch", "x")))
        _, other = await scripted(bench, twin)
        await scripted(bench, twin.but(subjects=(("ek", "e3"), ("batch", "x"))))
        done = await bans.ban_nodes(
            store, ADA, [*seen(Node.of(machine, answer)), SeenNode(UUID(other["joined"]["nodeId"]))]
        )

        kinds = {row["kind"] for row in done.bans}
        assert kinds == {"ek", "spki", "certificate"}
        assert {row["value"] for row in done.bans if row["kind"] == "ek"} == {"e1", "e2"}
        _, third = await scripted(bench, script.but(subjects=(("ek", "e4"), ("image", "i1"))))
        assert third["outcome"] == "joined"
        await explained(database)


async def test_end_of_a_ban_lets_the_machine_attest_again(database: str, store: Database) -> None:
    """Not more: its certificates were revoked, and stay so."""
    async with join_bench(database, attestors=[Scripted("scripted")]) as bench:
        script = Script(
            tenant="acme", pool="web", bind="b1", rekey=True, subjects=(("ek", "e1"), ("ak", "a1"))
        )
        machine, answer = await scripted(bench, script)
        node = Node.of(machine, answer)
        await bans.add_bans(store, ADA, [Subject("ek", "e1"), Subject("ak", "a1")])
        first = await bans.remove_bans(store, ADA, [Subject("ek", "e1")])
        assert first.nodes == []
        second = await bans.remove_bans(store, ADA, [Subject("ak", "a1")])
        [renewal] = await bench.ask(node.renewal(bench.machine()))
        _, again = await scripted(bench, script)

        assert [row["state"] for row in second.nodes] == ["evicted"]
        assert renewal["outcome"] == "refused"
        assert again["joined"]["nodeId"] == node.id
        with pytest.raises(NotFound):
            await bans.remove_bans(store, ADA, [Subject("ak", "a1")])
        assert "node.unbanned" in await types(bench)
        await explained(database)


async def test_banned_nodes_are_unbanned_by_their_ids(database: str, store: Database) -> None:
    """Whoever banned a node by mistake knows its id, and not the hashes of its keys."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        done = await bans.ban_nodes(store, ADA, seen(node))
        undone = await bans.unban_nodes(store, ADA, seen(node))

        assert {row["subject"] for row in done.bans} == {row["subject"] for row in undone.bans}
        assert await bench.one("SELECT state FROM nodes") == "evicted"
        with pytest.raises(Conflict):
            await bans.unban_nodes(store, ADA, seen(node))
        await explained(database)


async def test_ban_wins_against_joins_and_renewals_that_run(database: str, store: Database) -> None:
    """A join that had read the table before the ban would otherwise slip past it for ever."""
    crypto = keys()
    async with (
        join_bench(database, crypto=crypto, attestors=[Scripted("scripted")]) as one,
        join_bench(database, crypto=crypto, attestors=[Scripted("scripted")], worker="w1") as two,
    ):
        await one.place("acme", "web")
        found = []
        for nth in range(12):
            machine, answer = await scripted(
                one, Script(tenant="acme", pool="web", subjects=(("ek", f"e{nth}"),))
            )
            found.append(Node.of(machine, answer))

        async def join(bench: Bench, nth: int) -> None:
            script = Script(tenant="acme", pool="web", subjects=(("ek", f"e{nth}"),))
            asked = [found[nth].renewal(bench.machine())]
            asked += [
                bench.machine().request(script.encode(), attestor="scripted") for _ in range(4)
            ]
            await bench.ask(*asked)

        async def ban(nth: int) -> None:
            await bans.add_bans(store, ADA, [Subject("ek", f"e{nth}")])

        for nth in range(12):
            await asyncio.gather(join(one, nth), ban(nth), join(two, nth))

        living = await one.fetch(
            "SELECT n.id FROM nodes n JOIN node_subjects s ON s.node_id = n.id JOIN bans b ON b.subject = s.subject"
            " WHERE n.state <> 'banned' OR EXISTS (SELECT FROM node_certs c WHERE c.node_id = n.id AND c.revoked_at IS NULL)"
        )
        assert living == []
        assert await one.one("SELECT count(*) FROM bans") == 12
        await explained(database)


async def test_expiring_nodes_are_found(database: str, store: Database) -> None:
    """A node that has not renewed will drop out of the fleet; somebody should look before."""
    async with join_bench(database) as bench:
        node, other, gone = await joined(bench), await joined(bench), await joined(bench)
        for one in (node, gone):
            await bench.fetch(
                "UPDATE node_certs SET not_after = now() + interval '2 days' WHERE node_id = $1",
                UUID(one.id),
            )
        await bench.fetch("UPDATE nodes SET state = 'retired' WHERE id = $1", UUID(gone.id))
        rows = await nodes.list_nodes(store, NodeFilter(expiring_in=timedelta(days=3)))
        every = await nodes.list_nodes(store, NodeFilter())

        assert [str(row["id"]) for row in rows] == [node.id]
        assert len(every) == 3
        assert other.id in {str(row["id"]) for row in every}
