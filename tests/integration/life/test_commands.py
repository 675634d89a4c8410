"""A node is told what to do: only what it may be told, when it asks, and with nobody listening in."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from tests.support.fetches import (
    ADA,
    asked,
    commands_in,
    fetch,
    report,
    sent,
    told,
)
from tests.support.joins import Bench, join_bench, keys
from tests.support.renewals import (
    Node,
    explained,
    joined,
    keys_of_all_kinds,
    reasons,
    renewed,
    types,
)
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, Conflict, Denied, NotFound
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import add_bans
from watchword.handlers.operators.commands import (
    MAX_OPEN,
    CommandOrder,
    cancel_command,
    list_commands,
    send_command,
)
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.connection import Database
from watchword.schemas.canonical import unb64
from watchword.schemas.commands import MAX_PAYLOAD_BYTES, MAX_SENT, Report, Reports

pytestmark = pytest.mark.postgres

SECRET = b"the password of the backup is correct-horse"


async def states(bench: Bench) -> list[tuple[str, str | None]]:
    """Return state and reason of each command, oldest first."""
    rows = await bench.fetch("SELECT state, reason FROM node_commands ORDER BY id")
    return [(row[0], row[1]) for row in rows]


async def put(bench: Bench, node: Node, verb: Verb) -> None:
    """Put a node out as an operator does."""
    db = Database(bench.dsn, application_name="test")
    try:
        await change_nodes(db, ADA, verb, [SeenNode(UUID(node.id))])
    finally:
        await db.close()


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


async def test_request_that_comes_again_after_an_eviction_gets_nothing(database: str) -> None:
    """A recorded answer is no reason to tell a machine that was put out."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        request = fetch(bench, node)
        await told(bench, request)
        await put(bench, node, "evict")
        [again] = await told(bench, request)

        assert again.commands is not None
        assert again.commands.items == ()


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
    ("allowed", "kind"),
    [
        (["wipe"], "disk.wipe"),
        (["disk.wipe"], "wipe"),
        (["disk.*"], "disk"),
        (["logs.collect"], "disk.wipe"),
        ([], "disk.wipe"),
        (["disk.wip"], "disk.wipe"),
        (["dis*"], "disk.wipe"),
    ],
)
async def test_kind_that_the_certificate_does_not_allow_is_refused_and_written_down(
    database: str, allowed: list[str], kind: str
) -> None:
    """`wipe` does not allow `disk.wipe`: what a node may be told was decided when it joined."""
    registered = Actor("ada", "a test", kinds=BUILT_IN | {"wipe", "disk"})
    async with join_bench(database) as bench:
        node = await joined(bench)
        await bench.fetch("UPDATE node_certs SET allowed_kinds = $1", allowed)
        with pytest.raises(Denied, match="may not be told"):
            await sent(bench, node, kind, payload=SECRET, actor=registered)

        assert await states(bench) == [("refused", "not-allowed")]
        assert await types(bench) == ["node.joined", "node.command.refused"]
        assert await bench.one("SELECT count(*) FROM node_command_payloads") == 0
        assert await bench.one("SELECT who FROM audit_log WHERE action = 'node.command.refuse'")
        assert await asked(bench, node) == []


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


async def ban_site(dsn: str, site: str) -> None:
    """Ban a site as an operator does."""
    db = Database(dsn, application_name="test")
    try:
        await add_bans(db, ADA, [Subject("site", site)])
    finally:
        await db.close()


@pytest.mark.parametrize("verb", ["evict", "retire", "delete"])
async def test_node_that_is_put_out_gets_nothing_that_waited(database: str, verb: Verb) -> None:
    """Between the order and the node's question it lost its place: the order goes with it."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node, payload=SECRET)
        await put(bench, node, verb)
        [answer] = await told(bench, fetch(bench, node))

        assert answer.refused is not None
        assert await reasons(bench) == ["command:node-state"]
        assert await states(bench) == [("refused", "node-state")]
        assert "node.command.refused" in await types(bench)
        assert "node.command.dispatched" not in await types(bench)
        assert await bench.one("SELECT count(*) FROM node_command_payloads") == 0
        await explained(database)


@pytest.mark.parametrize(
    ("restriction", "reason"),
    [
        ("UPDATE node_certs SET allowed_kinds = '{logs.collect}'", "not-allowed"),
        ("UPDATE node_certs SET allowed_kinds = '{}'", "not-allowed"),
        ("UPDATE node_commands SET kind = 'unheard.of'", "not-registered"),
    ],
)
async def test_command_that_is_not_allowed_any_more_stops_at_dispatch(
    database: str, restriction: str, reason: str
) -> None:
    """What was checked when it was sent is checked again, against what is in force now."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        await bench.run(restriction)

        assert await asked(bench, node) == []
        assert await states(bench) == [("refused", reason)]
        assert (await types(bench))[-2:] == ["node.activated", "node.command.refused"]


async def test_re_key_with_fewer_kinds_stops_what_waits(database: str) -> None:
    """The same by the way that takes kinds away: the machine attests again, with a narrower token."""
    async with join_bench(database) as bench:
        node = await joined(bench, allowed_kinds=["disk.wipe", "logs.collect"])
        await sent(bench, node, "disk.wipe")
        await sent(bench, node, "logs.collect")
        token = await bench.token(
            expect={"node": node.id}, allow_reclaim=True, allowed_kinds=["logs.collect"]
        )
        machine = bench.machine()
        [answer] = await bench.ask(machine.request(token.payload))
        [command] = await asked(bench, Node.of(machine, answer))

        assert command.kind == "logs.collect"
        assert await states(bench) == [("refused", "not-allowed"), ("dispatched", None)]
        await explained(database)


async def test_ban_that_comes_while_a_node_asks_wins(database: str) -> None:
    """Either the node was told before the ban, or it is told nothing."""
    async with join_bench(database) as bench:
        nodes = [await joined(bench, site="berlin") for _ in range(8)]
        for node in nodes:
            await sent(bench, node)
        fetches = [fetch(bench, node) for node in nodes]
        answers, _ = await asyncio.gather(told(bench, *fetches), ban_site(database, "acme/berlin"))

        got = [answer.commands is not None and len(answer.commands.items) for answer in answers]
        dispatched = (await types(bench)).count("node.command.dispatched")
        assert dispatched == sum(map(bool, got))
        for node in nodes:
            [late] = await told(bench, fetch(bench, node))
            assert late.refused is not None
        await explained(database)


WRONG: dict[str, tuple[Callable[[Node, Node], dict[str, Any]], str]] = {
    "unknown certificate": (lambda *_: {"tbs_sha256": b"u" * 32}, "command:unknown-certificate"),
    "another tenant's certificate": (lambda _, o: {"tbs_sha256": o.tbs_sha256}, "command:signature"),
    "another node's key": (lambda _, o: {"signs": o.key}, "command:signature"),
    "another key's CSR": (lambda _, o: {"csr_key": o.key}, "command:signature"),
    "another request": (
        lambda *_: {"signed_id": "01901f3d-8694-739b-aea5-966c26f8ad91"},
        "command:signature",
    ),
    "other reports": (
        lambda *_: {"signed_reports": Reports(items=(Report(id=str(uuid7()), result="done"),))},
        "command:signature",
    ),
    "no evidence": (lambda *_: {"payload": b""}, "command:malformed"),
    "another role": (lambda *_: {"role": "site"}, "command:wrong-role"),
    "no reply key": (lambda *_: {"reply_key": None}, "command:reply-key"),
    "a reply key of low order": (lambda *_: {"reply_key": bytes(32)}, "command:reply-key"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_request_is_refused_like_everything_else_and_learns_nothing(
    database: str, what: str
) -> None:
    """Whoever lacks the node's key must not even learn whether something waits for it."""
    changes, reason = WRONG[what]
    async with join_bench(database) as bench:
        node, other = await joined(bench), await joined(bench, tenant="globex")
        await sent(bench, node, payload=SECRET)
        request = fetch(bench, node, **changes(node, other))
        [answer] = await told(bench, request)

        assert answer.refused is not None
        assert answer.commands is None
        assert await reasons(bench) == [reason]
        assert await states(bench) == [("queued", None)]
        assert await bench.one("SELECT tenant FROM refusals") == (
            "acme" if reason == "command:wrong-role" or what == "another key's CSR" else "root"
        )


@pytest.mark.parametrize("changes", [{"attestor": "join-token"}, {"state": b"s" * 32}])
async def test_request_in_another_envelope_is_unsupported(
    database: str, changes: dict[str, Any]
) -> None:
    """There is one form of it; anything else is another release's, or nonsense."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        [answer] = await told(bench, fetch(bench, node, **changes))
        assert answer.failed is not None
        assert answer.failed.code == "UNSUPPORTED"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("UPDATE node_certs SET revoked_at = now(), revoked_why = 'test'", "command:revoked"),
        ("UPDATE node_certs SET not_after = now()", "command:expired"),
        ("UPDATE node_certs SET is_current = false", "command:superseded"),
    ],
)
async def test_certificate_that_counts_no_more_gets_nothing(
    database: str, script: str, reason: str
) -> None:
    """An old disk must not be able to read what its successor is told, nor to make it go away."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await sent(bench, node)
        await bench.run(script)
        [answer] = await told(bench, fetch(bench, node))

        assert answer.refused is not None
        assert await reasons(bench) == [reason]
        assert await states(bench) == [("queued", None)]


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
