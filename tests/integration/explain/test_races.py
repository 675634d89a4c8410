"""Workers that judge at once, operators beside them, and a PostgreSQL that stands still now and then."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from tests.support.explaining import Asked, disagreements, explain_all, explainer
from tests.support.joins import Bench, join_bench, keys
from tests.support.renewals import Node, joined
from tests.support.scenarios import attestors, scenario, seed
from watchword.handlers.errors import OperatorError, Unavailable
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import ban_nodes, unban_nodes
from watchword.handlers.operators.standing import SeenNode, change_nodes
from watchword.handlers.store.connection import Database

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")
_WORKERS = 3
_REQUESTS = 150
_NODES = 6
_RENEWALS = 6


async def _operates(rnd: Random, bench: Bench, store: Database) -> None:
    """Ban, free, evict, retire and delete nodes as they come."""
    while True:
        await asyncio.sleep(rnd.random() * 0.05)
        rows = await bench.fetch("SELECT id FROM nodes ORDER BY random() LIMIT 1")
        if not rows:
            continue
        seen = [SeenNode(rows[0][0])]
        with suppress(OperatorError, Unavailable):
            match rnd.choice(("ban", "ban", "unban", "evict", "retire", "delete")):
                case "ban":
                    await ban_nodes(store, ADA, seen)
                case "unban":
                    await unban_nodes(store, ADA, seen)
                case act:
                    await change_nodes(store, ADA, act, seen)


async def _stands_still(rnd: Random, bench: Bench) -> None:
    """Have each session stand still for a while, one after the other goes on."""
    while True:
        await asyncio.sleep(rnd.random() * 0.2)
        rows = await bench.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND application_name IN ('watchword-test', 'test')"
        )
        pids = [row[0] for row in rows]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(rnd.random() * 0.3)
            rnd.shuffle(pids)
            while pids:
                _go_on(pids.pop())
                await asyncio.sleep(rnd.random() * 0.01)
        finally:
            for pid in pids:
                _go_on(pid)


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do this meanwhile; what goes wrong there is raised in the end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _renew(rnd: Random, benches: list[Bench]) -> None:
    """Have nodes renew, now and then from a certificate that they have renewed before."""

    async def live() -> None:
        node = await joined(rnd.choice(benches))
        for _ in range(_RENEWALS):
            bench = rnd.choice(benches)
            machine = bench.machine()
            [answer] = await bench.ask(node.renewal(machine))
            if answer["outcome"] == "joined" and rnd.random() < 0.8:
                node = Node.of(machine, answer)

    await asyncio.gather(*[live() for _ in range(_NODES)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(2))
async def test_what_workers_decide_at_once_is_explained(database: str, number: int) -> None:
    """Whoever asks why a machine was refused in the middle of an outage must not be told that there is a bug."""
    rnd = Random(number)  # noqa: S311 - a scenario's number, no secret
    crypto, asked = keys(), Asked()
    store = Database(database, application_name="test")
    async with AsyncExitStack() as stack:
        benches = [
            await stack.enter_async_context(
                join_bench(
                    database,
                    attestors=attestors(),
                    crypto=crypto,
                    observer=asked,
                    worker=f"worker-{worker}",
                )
            )
            for worker in range(_WORKERS)
        ]
        await seed(benches[0])
        asks = scenario(rnd, benches[0].seal_to, _REQUESTS).asks

        async def works(bench: Bench) -> None:
            while asks:
                batch = [asks.pop() for _ in range(min(rnd.randrange(1, 9), len(asks)))]
                await bench.ask(*[ask.value for ask in batch])

        async with _beside(_operates(rnd, benches[0], store), _stands_still(rnd, benches[1])):
            await asyncio.gather(*[works(bench) for bench in benches], _renew(rnd, benches))
        found = await explain_all(
            benches[0], explainer(crypto[0], attestors()), asked.incoming.values()
        )
    await store.close()

    assert disagreements(found) == []
    assert len({one.verdict for one in found}) > 5
