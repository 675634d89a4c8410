"""PostgreSQL answers, but not in time."""

import asyncio

import asyncpg
import pytest

from tests.support.joins import join_bench
from tests.support.waiting import until
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
