"""PostgreSQL answers, but not in time."""

import asyncio
import os
import signal

import asyncpg
import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import join_bench
from tests.support.waiting import until
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.handlers.join.observer import Unobserved
from watchword.handlers.join.patience import LATE_IN_A_ROW
from watchword.handlers.service import JoinClock

pytestmark = pytest.mark.postgres


class Retries(Unobserved):
    """Counts attempts that were given up."""

    count = 0

    def retried(self, why: str) -> None:
        del why
        self.count += 1


async def test_verifier_is_not_blamed_for_a_read_that_stalls(database: str) -> None:
    """Else a stall of seconds answers UNAVAILABLE to everybody, and rests the attestor for 30 s more."""
    retries = Retries()
    clock = JoinClock(verify_seconds=0.2)
    locker = await asyncpg.connect(database)
    try:
        async with join_bench(database, clock=clock, observer=retries) as bench:
            token = await bench.token(uses=100)
            requests = [bench.machine().request(token.payload) for _ in range(LATE_IN_A_ROW + 1)]
            async with locker.transaction():
                await locker.execute("LOCK TABLE watchword.tokens IN ACCESS EXCLUSIVE MODE")
                asking = asyncio.create_task(bench.ask(*requests))
                await until(lambda: retries.count > 1, "the batch was given up twice")
            answers = await asking
            answers += await bench.ask(bench.machine().request(token.payload))
    finally:
        await locker.close()
    assert {answer["outcome"] for answer in answers} == {"joined"}


class StandsStill(Scripted):
    """Speaks to a PostgreSQL that stands still in the middle of it, the first time."""

    backend = 0

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Ask who serves this transaction, have it stand still, and ask for something more."""
        assert context.tx is not None
        if not self.backend:
            [(self.backend,)] = await context.tx.fetch("SELECT pg_backend_pid()")
            os.kill(self.backend, signal.SIGSTOP)
            await context.tx.fetch("SELECT 1")
        return await super().verify(evidence, context)


async def test_author_is_not_blamed_for_an_own_statement_that_stalls(database: str) -> None:
    """A statement that is slow can be cancelled; nothing can be if PostgreSQL stands still, and then nobody is told a fault."""
    retries = Retries()
    attestor = StandsStill("lane", uses_tx=True)
    async with join_bench(database, attestors=[attestor], observer=retries) as bench:
        await bench.author_role("lane")
        await bench.place("acme", "web")
        request = bench.machine().request(Script(bind="b").encode(), attestor="lane")
        asking = asyncio.create_task(bench.ask(request))
        try:
            await until(lambda: retries.count > 0 or asking.done(), "the attempt was given up")
        finally:
            os.kill(attestor.backend, signal.SIGCONT)
        answers = await asking
    assert [answer["outcome"] for answer in answers] == ["joined"]
