"""A node is told what to do: when it asks, with nobody listening in, and so that its end is known."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from tests.support.fetches import ADA, SECRET, asked, commands_in, fetch, report, sent, states, told
from tests.support.joins import join_bench, keys
from tests.support.renewals import explained, joined, keys_of_all_kinds, renewed, types
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.commands import (
    MAX_OPEN,
    CommandOrder,
    cancel_command,
    list_commands,
    send_command,
)
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.connection import Database
from watchword.schemas.canonical import unb64
from watchword.schemas.commands import MAX_PAYLOAD_BYTES, MAX_SENT

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("key", keys_of_all_kinds(), ids=["p256", "p384", "ed25519"])
async def test_command_reaches_its_node_and_its_end_is_known(database: str, key: Any) -> None:  # noqa: ANN401
    """An operator says it once, and sees later that it was done."""
    async with join_bench(database) as bench:
        node = await joined(bench, key=key, allowed_kinds=["disk.*"])
        row = await sent(bench, node, payload=SECRET)
        [command] = await asked(bench, node)

        assert (command.id, command.node_id, command.kind) == (str(row.id), node.id, "disk.wipe")
        assert unb64(command.payload) == SECRET
        serial = await bench.one("SELECT serial FROM node_certs")
        assert command.certificate_serial == serial.hex()
        assert await bench.one("SELECT state FROM nodes") == "active"

        assert await asked(bench, node, reports=[report(command)]) == []
        assert await states(bench) == [("done", None)]
        assert await types(bench) == [
            "node.joined", "node.command.enqueued", "node.activated", "node.command.dispatched",
            "node.command.finished",
        ]  # fmt: skip
        assert await bench.one("SELECT count(*) FROM node_command_payloads") == 0
        await explained(database)


async def test_what_a_command_says_is_nowhere_but_in_its_row(database: str) -> None:
    """Journal, audit log and Kafka are read by many; what is wiped with which password is for the node."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node, payload=SECRET)
        request = fetch(bench, node)
        [answer] = await bench.engine.judge([bench.incoming(request.request)])
        for table in ("journal", "audit_log", "node_commands", "inbox"):
            rows = await bench.fetch(f"SELECT t::text FROM {table} t")  # noqa: S608 - ours
            text = " ".join(row[0] for row in rows)
            assert SECRET.hex() not in text
            assert SECRET.decode() not in text
        assert SECRET not in answer.value
        assert b"disk" not in unb64_parts(answer.value)


def unb64_parts(token: bytes) -> bytes:
    """Return what stands in clear in an answer."""
    import base64  # noqa: PLC0415

    payload = token.split(b".")[1]
    return base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))


async def test_command_is_handed_out_again_until_its_end_is_reported(database: str) -> None:
    """An answer may be lost: the node gets the same signed bytes again, and knows them by their id."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        first, second = [(await told(bench, fetch(bench, node)))[0].commands for _ in range(2)]

        assert first is not None
        assert second is not None
        assert first.items == second.items
        assert (await types(bench)).count("node.command.dispatched") == 1
        await explained(database)


async def test_same_request_again_gets_the_same_commands(database: str) -> None:
    """Kafka may deliver twice, and an agent may send twice: neither may lose what was handed out."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        request = fetch(bench, node)
        first, twin = await told(bench, request, request)
        [again] = await told(bench, request)

        assert commands_in(bench, first) == commands_in(bench, twin) == commands_in(bench, again)
        assert len(commands_in(bench, again)) == 1
        assert (await types(bench)).count("node.command.dispatched") == 1


async def test_asking_for_nothing_writes_nothing(database: str) -> None:
    """Ten thousand nodes ask every minute; mostly there is nothing for them."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await asked(bench, node)
        before = await bench.one("SELECT count(*) FROM inbox")
        assert await asked(bench, node) == []

        assert await bench.one("SELECT count(*) FROM inbox") == before
        assert await types(bench) == ["node.joined", "node.activated"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"kind": "wipe"}, id="not registered"),
        pytest.param({"kind": "disk.*"}, id="a pattern"),
        pytest.param({"payload": b"x" * (MAX_PAYLOAD_BYTES + 1)}, id="too large"),
        pytest.param({"expires_in": timedelta(0)}, id="expired already"),
        pytest.param({"actor": Actor("ada")}, id="no reason"),
    ],
)
async def test_order_that_makes_no_sense_writes_nothing(
    database: str, changes: dict[str, Any]
) -> None:
    """A slip of the pen is told to whoever made it, and is no event."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        with pytest.raises(BadArgument):
            await sent(bench, node, **changes)

        assert await states(bench) == []
        assert await types(bench) == ["node.joined"]


async def test_order_for_a_node_that_somebody_changed_writes_nothing(database: str) -> None:
    """Exit 4: the operator decided on what is not so any more."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        db = Database(database, application_name="test")
        try:
            for version, error in ((7, Conflict), (None, NotFound)):
                ident = UUID(node.id) if version else UUID(str(uuid7()))
                order = CommandOrder(seen=SeenNode(ident, version), kind="disk.wipe")
                with pytest.raises(error):
                    await send_command(db, ADA, order)
        finally:
            await db.close()
        assert await states(bench) == []


async def test_few_commands_may_wait_for_one_node(database: str) -> None:
    """A script that loops must not make a queue that a node works off for a week."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        for _ in range(MAX_OPEN):
            await sent(bench, node)
        with pytest.raises(Conflict):
            await sent(bench, node)
        [answer] = await told(bench, fetch(bench, node))

        assert len(commands_in(bench, answer)) == MAX_SENT
        assert answer.commands is not None
        assert answer.commands.more
        reports = [report(command) for command in commands_in(bench, answer)]
        [rest] = await told(bench, fetch(bench, node, reports=reports))
        assert {c.id for c in commands_in(bench, rest)}.isdisjoint({r.id for r in reports})


async def test_renewed_node_gets_what_waits_under_its_new_certificate(database: str) -> None:
    """A renewal in between costs nothing: the same command, for the certificate that is in force now."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        [before] = await asked(bench, node)
        node = await renewed(bench, node)
        [after] = await asked(bench, node)

        assert after.id == before.id
        assert after.certificate_serial != before.certificate_serial
        await explained(database)


async def test_nobody_reports_for_another_node_or_of_what_was_not_handed_out(
    database: str,
) -> None:
    """A node's word counts for what it was told, and for nothing else."""
    async with join_bench(database) as bench:
        node, other = await joined(bench), await joined(bench)
        handed, queued = await sent(bench, node), await sent(bench, other)
        await asked(bench, node)
        await asked(bench, other, reports=[report(handed), report(queued)])

        assert await states(bench) == [("dispatched", None), ("dispatched", None)]


@pytest.mark.parametrize(
    ("result", "status"),
    [("failed", 3), ("timed-out", None), ("interrupted", None), ("no-handler", None)],
)
async def test_failure_is_told_as_the_node_says_it(
    database: str, result: str, status: int | None
) -> None:
    """Whoever sent it has to see that it was not done, and why."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        row = await sent(bench, node)
        await asked(bench, node)
        request = fetch(bench, node, reports=[report(row, result, status)])
        await told(bench, request, request)
        await asked(bench, node, reports=[report(row)])

        assert await states(bench) == [("failed", result)]
        assert await bench.one("SELECT exit_status FROM node_commands") == status
        assert (await types(bench)).count("node.command.finished") == 1
        await explained(database)


async def test_cancelled_command_is_not_handed_out_and_only_once_cancelled(database: str) -> None:
    """One operator cancels, and on what they saw; the second one is told."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        row = await sent(bench, node)
        db = Database(database, application_name="test")
        try:
            with pytest.raises(Conflict):
                await cancel_command(db, ADA, row.id, version=9)
            cancelled = await cancel_command(db, ADA, row.id, version=1)
            with pytest.raises(Conflict):
                await cancel_command(db, ADA, row.id)
            with pytest.raises(NotFound):
                await cancel_command(db, ADA, UUID(str(uuid7())))
            [listed] = await list_commands(db, CommandFilter(state="cancelled", tenant="acme"))
        finally:
            await db.close()

        assert cancelled == listed
        assert await asked(bench, node) == []
        assert (await types(bench)).count("node.command.cancelled") == 1
        await explained(database)


async def test_what_a_node_has_done_counts_although_it_was_cancelled_meanwhile(
    database: str,
) -> None:
    """The disk is wiped, whatever the list says; so the list says so."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        row = await sent(bench, node)
        await asked(bench, node)
        db = Database(database, application_name="test")
        try:
            await cancel_command(db, ADA, row.id)
        finally:
            await db.close()
        await asked(bench, node, reports=[report(row)])

        assert await states(bench) == [("done", None)]
        await explained(database)


async def test_racing_workers_hand_out_each_command_with_one_event(database: str) -> None:
    """Two workers, the same nodes, one moment."""
    crypto = keys()
    async with (
        join_bench(database, crypto=crypto) as one,
        join_bench(database, crypto=crypto, worker="w1") as two,
    ):
        nodes = [await joined(bench) for bench in (one, two) * 3]
        for node in nodes:
            await sent(one, node)
        first = [fetch(one, node) for node in nodes]
        second = [fetch(one, node) for node in reversed(nodes)]
        answers = await asyncio.gather(told(one, *first), told(two, *second))

        assert all(len(commands_in(one, a)) == 1 for found in answers for a in found)
        assert (await types(one)).count("node.command.dispatched") == len(nodes)
        assert (await types(one)).count("node.activated") == len(nodes)
        await explained(database)
