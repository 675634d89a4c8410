"""How long verifiers may take."""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.attestors.scripted import deaf
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Broken, Judgement, Refusal
from watchword.handlers.join.patience import LATE_IN_A_ROW, REST, Patience
from watchword.schemas.ids import AttestorId

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SAID = Refusal(Refused(AttestorId("acme"), "no"))
LATE = Broken("too late")


async def at_once() -> Judgement:
    return SAID


async def never() -> Judgement:
    await asyncio.Event().wait()
    return SAID


async def swallows() -> Judgement:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return SAID
    return SAID


async def refuses_to_end() -> Judgement:
    await deaf()
    return SAID


async def cancels_itself() -> Judgement:
    raise asyncio.CancelledError


async def run(patience: Patience, *works: Coroutine[Any, Any, Judgement], now: datetime = NOW) -> list[Judgement]:  # fmt: skip
    return await patience.run(
        [("acme", work) for work in works], now, lane=None, waits_for=lambda: 0.0
    )


async def test_late_one_is_broken_and_the_others_are_heard() -> None:
    assert await run(Patience(0.05), at_once(), never(), at_once()) == [SAID, LATE, SAID]


async def test_what_a_cancelled_one_comes_to_is_not_heard() -> None:
    """It may have skipped the check that took too long."""
    assert await run(Patience(0.05), swallows()) == [LATE]


async def test_one_that_will_not_end_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with asyncio.timeout(10):
        assert await run(Patience(0.05), refuses_to_end(), at_once()) == [LATE, SAID]
    left = asyncio.all_tasks() - before
    assert len(left) == 1


async def test_one_that_cancels_itself_is_broken_and_not_late() -> None:
    patience = Patience(0.05)
    for _ in range(LATE_IN_A_ROW):
        assert await run(patience, cancels_itself()) == [Broken("cancelled itself")]
    assert not patience.rests("acme", NOW)


@pytest.mark.parametrize("held", [0.05, 0.11, 0.5])
async def test_whoever_holds_the_loop_makes_no_other_late(held: float) -> None:
    """The others have had no turn; also if it was held for hardly longer than the time limit."""

    async def holds_the_loop() -> Judgement:
        time.sleep(held)  # noqa: ASYNC251 - the mistake that authors make
        return SAID

    async def reads() -> Judgement:
        for _ in range(5):
            await asyncio.sleep(0.005)
        return SAID

    assert await run(Patience(0.1), holds_the_loop(), reads()) == [SAID, SAID]


async def test_five_in_a_row_and_only_in_a_row_rest_the_attestor() -> None:
    patience = Patience(0.02)
    late = [never() for _ in range(LATE_IN_A_ROW - 1)]
    await run(patience, *late, at_once(), *[never() for _ in range(LATE_IN_A_ROW - 1)])
    assert not patience.rests("acme", NOW)
    await run(patience, never())
    assert patience.rests("acme", NOW)
    assert patience.rests("acme", NOW + REST - timedelta(microseconds=1))
    assert not patience.rests("acme", NOW + REST)
    assert not patience.rests("another", NOW)


async def test_what_a_verification_raises_is_raised_and_all_have_ended() -> None:
    async def breaks() -> Judgement:
        raise LookupError

    before = asyncio.all_tasks()
    with pytest.raises(LookupError):
        await run(Patience(0.05), breaks(), never(), breaks())
    assert asyncio.all_tasks() == before


async def test_cancelled_run_ends_everything() -> None:
    before = asyncio.all_tasks()
    running = asyncio.create_task(run(Patience(60), never(), never()))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before


async def test_attestor_has_no_more_at_once_than_it_says() -> None:
    """An HSM has four sessions, and a batch sixty-four requests."""
    running = most = 0

    async def counted() -> Judgement:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return SAID

    assert await run(Patience(5, {"acme": 3}), *(counted() for _ in range(20))) == [SAID] * 20
    assert most == 3


async def test_who_found_no_place_in_time_costs_the_attestor_nothing() -> None:
    """It was not asked. Two that hang are late, the rest comes again, and the breaker counts two."""
    patience = Patience(0.05, {"acme": 2})
    found = await run(patience, *(never() for _ in range(10)))
    assert found == [LATE, LATE, *[Broken("no place at its attestor")] * 8]
    assert not patience.rests("acme", NOW)
