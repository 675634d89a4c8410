"""PostgreSQL is away, dies, or loses its answer to a commit: every request still gets its one outcome."""

import asyncio
import contextlib
import time
from random import Random
from typing import Any

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.effects import one_effect, scripted
from tests.support.folders import server_folder
from tests.support.joins import Bench, code, join_bench
from tests.support.postgres import template_cluster
from tests.support.scenarios import Order
from tests.support.waiting import until
from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.join import engine as engine_module
from watchword.handlers.store.migrate import migrate
from watchword.streams.dev.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


async def end_backends(bench: Bench) -> None:
    """End every connection of the service."""
    await bench.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'watchword-test' AND datname = current_database()"
    )


async def test_outage_however_long_ends_in_the_outcome(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waited through an outage is judged; that it waited says nothing about it."""
    monkeypatch.setattr(engine_module, "pause", lambda failures: 0.0 * failures)
    order = Order()
    async with join_bench(database, observer=order) as bench:
        token = await bench.token(uses=2)
        seen = bench.machine().request(token.payload)
        await bench.ask(seen)
        store: Any = bench.engine._store
        real = store.session
        left = 500

        async def away() -> Any:  # noqa: ANN401 - a session
            nonlocal left
            if left:
                left -= 1
                raise StoreUnavailable
            return await real()

        store.session = away
        again, new = await bench.ask(seen, bench.machine().request(token.payload))
        assert [code(again), code(new)] == ["joined", "joined"]
        assert order.retries == 500
        await one_effect(bench, 2)


@pytest.mark.parametrize("committed", [False, True])
async def test_lost_answer_to_commit_has_one_effect(database: str, *, committed: bool) -> None:
    """Whether it had happened is unknown; the inbox tells the next attempt."""
    order = Order()
    async with join_bench(database, attestors=[Scripted()], observer=order) as bench:
        token = await bench.token(uses=5)
        store: Any = bench.engine._store
        real = store.session

        async def losing() -> Any:  # noqa: ANN401 - a session
            session = await real()
            commit = session.commit

            async def lose() -> None:
                session.commit = commit
                if committed:
                    await commit()
                await bench.fetch(
                    "SELECT pg_terminate_backend($1)", session.connection.get_server_pid()
                )
                if committed:
                    raise StoreUnavailable
                await commit()

            if order.retries == 0:
                session.commit = lose
            return session

        store.session = losing
        good, bad, challenged = await bench.ask(
            bench.machine().request(token.payload),
            bench.machine().request(token.payload[:-1] + b"\0"),
            scripted(bench, Script(rounds=2)),
        )
        assert [code(good), code(bad), code(challenged)] == ["joined", "refused", "deferred"]
        assert order.retries == 1
        await one_effect(bench, 1)
        assert await bench.one("SELECT count(*) FROM refusals") == 1
        assert await bench.one("SELECT count(*) FROM inbox") == 2


async def test_backends_ended_at_any_moment_have_one_effect(database: str) -> None:
    """Many little deaths, one outcome for each request."""
    rnd = Random(1)  # noqa: S311 - moments
    order = Order()
    async with join_bench(database, observer=order) as bench:
        # More than the fastest machine asks for in that time.
        token = await bench.token(uses=1_000_000)

        async def kill() -> None:
            for _ in range(20):
                await asyncio.sleep(rnd.uniform(0.01, 0.3))
                await end_backends(bench)

        killer = asyncio.create_task(kill())
        try:
            batches: list[list[bytes]] = []
            told: list[list[dict[str, Any]]] = []
            while not killer.done():
                batches.append([bench.machine().request(token.payload) for _ in range(6)])
                told.append(await bench.ask(*batches[-1]))
        finally:
            killer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killer
        assert {code(answer) for answers in told for answer in answers} == {"joined"}
        assert order.retries > 0
        await one_effect(bench, 6 * len(batches))
        again = [await bench.ask(*batch) for batch in batches]
        assert [[a["joined"] for a in answers] for answers in again] == [
            [a["joined"] for a in answers] for answers in told
        ]


async def test_read_only_server_is_waited_for(database: str) -> None:
    """After a failover the old primary may be read-only for a while; that is no verdict."""
    order = Order()
    async with join_bench(database, observer=order) as bench:
        token = await bench.token(uses=2)
        name = await bench.one("SELECT quote_ident(current_database())")
        await bench.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await end_backends(bench)
        judging = asyncio.create_task(bench.ask(bench.machine().request(token.payload)))
        await until(lambda: order.retries > 2, "the service tries again")
        await bench.run(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        [answer] = await judging
        assert code(answer) == "joined"
        await one_effect(bench, 1)


async def test_worker_that_pauses_in_its_transaction_is_cut_off(database: str) -> None:
    """A stopped process must not hold the locks of the fleet; when it wakes, it starts anew."""
    pauses = [2.5]

    def pause() -> None:
        if pauses:
            time.sleep(pauses.pop())

    order = Order()
    async with (
        join_bench(database, observer=order, before_commit=pause) as paused,
        join_bench(database) as other,
    ):
        token = await paused.token(uses=2)
        request = paused.machine().request(token.payload)

        def judge() -> dict[str, Any]:
            async def ask() -> dict[str, Any]:
                async with join_bench(
                    database,
                    observer=order,
                    before_commit=pause,
                    crypto=(
                        paused.engine._crypto,
                        paused.seal_to,
                        paused.signing,
                        paused.authority,
                    ),
                ) as bench:
                    [answer] = await bench.ask(request)
                    return answer

            return asyncio.run(ask())

        judging = asyncio.create_task(asyncio.to_thread(judge))
        await until(lambda: not pauses, "the worker pauses with the token locked")
        # Waits for the lock no longer than the other is allowed to idle with it.
        async with asyncio.timeout(30):
            [mine] = await other.ask(other.machine().request(token.payload))
        assert code(mine) == "joined"
        assert code(await judging) == "joined"
        assert order.retries >= 1
        await one_effect(paused, 2)


async def test_restart_and_a_commit_without_an_answer_on_a_real_server() -> None:
    """The server is stopped at once and started again; a commit waits for a standby and loses its client."""
    with server_folder("failures") as folder:
        server = EmbeddedPostgres(folder, template=template_cluster())
        await server.start()
        try:
            await migrate(server.dsn())
            order = Order()
            async with join_bench(server.dsn(), observer=order) as bench:
                token = await bench.token(uses=100)
                requests = [bench.machine().request(token.payload) for _ in range(30)]

                async def judge() -> list[str]:
                    return [code(a) for r in requests[:20] for a in await bench.ask(r)]

                judging = asyncio.create_task(judge())
                await until(lambda: len(order.seen) > 5, "some have joined")
                await bench.close()
                await server.restart("immediate")
                assert await judging == ["joined"] * 20
                assert order.retries > 0
                await one_effect(bench, 20)

                # Committed here, but the standby that does not exist never says so.
                await bench.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                await bench.run("SELECT pg_reload_conf()")
                before = order.retries
                last = asyncio.create_task(bench.ask(*requests[20:]))
                # Of the worker alone: what the server commits of its own accord waits too.
                waiting = (
                    "SELECT pid FROM pg_stat_activity "
                    "WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"
                )
                while not await bench.fetch(waiting):  # noqa: ASYNC110 - it happens in the server
                    await asyncio.sleep(0.01)
                await bench.run("ALTER SYSTEM RESET synchronous_standby_names")
                await bench.fetch(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) AS w")  # noqa: S608 - the query above
                await bench.run("SELECT pg_reload_conf()")
                assert [code(answer) for answer in await last] == ["joined"] * 10
                assert order.retries > before
                await one_effect(bench, 30)
        finally:
            await server.remove()
