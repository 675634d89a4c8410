"""Nobody is told what is not for them: neither a node that may not be told it, or not any more, nor who asks in its name."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from tests.support.fetches import ADA, SECRET, asked, fetch, sent, states, told
from tests.support.joins import Bench, join_bench
from tests.support.renewals import Node, explained, joined, reasons, types
from watchword.handlers.attestor import Subject
from watchword.handlers.errors import Denied
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import add_bans
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.store.connection import Database
from watchword.schemas.commands import Report, Reports

pytestmark = pytest.mark.postgres


async def put(bench: Bench, node: Node, verb: Verb) -> None:
    """Put a node out as an operator does."""
    db = Database(bench.dsn, application_name="test")
    try:
        await change_nodes(db, ADA, verb, [SeenNode(UUID(node.id))])
    finally:
        await db.close()


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
