"""A batch is nothing but its requests one after another, only faster."""

from collections import Counter
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from tests.support.joins import Bench, join_bench, keys
from tests.support.postgres import Databases
from tests.support.scenarios import (
    EMPTY,
    Ask,
    Order,
    attestors,
    conflicts,
    scenario,
    seed,
    state_of,
    told,
)
from watchword.handlers.store.slots import SlotLimits
from watchword.schemas.canonical import unb64

pytestmark = pytest.mark.postgres

EXAMPLES = 14
SIZE = 48
LIMITS = SlotLimits(per_reason=7, per_attestor=1000, window_s=3600)


@pytest.mark.timeout(300)
async def test_batch_equals_its_requests_one_after_another(databases: Databases) -> None:
    """Whatever meets in a batch, nobody is admitted, refused or published who would not be alone."""
    crypto = keys()
    total: Counter[str] = Counter()
    async with databases.migrated() as together, databases.migrated() as alone:
        for number in range(EXAMPLES):
            total += await _example(number, together, alone, crypto)

    assert not [name for name in EXPECTED if not total[name]], total
    assert total["rejudged"] > EXAMPLES


EXPECTED = (
    "rejudged", "rejudged twice", "joined", "refused", "invalid", "unavailable", "deferred", "failed",
    "published", "suppressed", "re-keyed", "by the lane",
    "key-in-use", "replayed", "bound-elsewhere", "used-up", "exhausted", "revoked", "bad-secret", "unknown-token", "wrong-role",
    "banned", "already-enrolled", "no-downgrade", "not-its-node", "not-allowed", "expect-mismatch", "csr-reused", "taken", "gone",
    "no", "other", "undecodable", "unknown-attestor",
)  # fmt: skip
"""What has to have happened somewhere, or the scenarios have gone soft."""


async def _example(number: int, together: str, alone: str, crypto: Any) -> Counter[str]:  # noqa: ANN401 - a tuple of four
    rnd = Random(number)  # noqa: S311 - a scenario's number, no secret
    order = Order()
    async with (
        join_bench(
            together, attestors=attestors(), limits=LIMITS, crypto=crypto, observer=order
        ) as batch,
        join_bench(alone, attestors=attestors(), limits=LIMITS, crypto=crypto) as single,
    ):
        for bench in (batch, single):
            await bench.run(EMPTY)
            await seed(bench)
        start = scenario(rnd, batch.seal_to, SIZE)
        asks = start.asks
        arrival: dict[bytes, int] = {}
        answers, singles = await _round(asks, 0, batch, single, order, arrival)
        assert [told(a) for a in answers] == [told(a) for a in singles], f"scenario {number}"

        # The second round: answers to challenges, among new requests that meet the old ones.
        later = scenario(rnd, batch.seal_to, SIZE // 2, start).asks
        first = [_answered(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        second = [_answered(ask, answer) for ask, answer in zip(asks, singles, strict=True)]
        more, more_singles = await _round(
            [*[a for a in first if a], *later],
            len(asks),
            batch,
            single,
            order,
            arrival,
            [*[a for a in second if a], *later],
        )

        state, expected = await state_of(batch, arrival), await state_of(single, arrival)
        for name, rows in state.items():
            assert rows == expected[name], f"scenario {number}: {name}"
        assert [told(a) for a in more] == [told(a) for a in more_singles], f"scenario {number}"
        assert order.retries == 0
        assert order.halvings == 0  # the last fence would hide what the decision got wrong
        return conflicts(order.seen, state, [*answers, *more])


async def _round(
    asks: list[Ask],
    start: int,
    batch: Bench,
    single: Bench,
    order: Order,
    arrival: dict[bytes, int],
    others: list[Ask] | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ask both, the single one in the order in which the batch was settled."""
    others = asks if others is None else others
    local: dict[bytes, int] = {}
    for place, (ask, other) in enumerate(zip(asks, others, strict=True)):
        local.setdefault(sha256(ask.value).digest(), place)
        for value in (ask.value, other.value):
            arrival.setdefault(sha256(value).digest(), start + place)
    before = len(order.seen)
    answers = await batch.ask(*[ask.value for ask in asks])
    fresh = Order()
    fresh.seen = order.seen[before:]
    singles: dict[bytes, dict[str, Any]] = {}
    for place in fresh.settled(local):
        [singles[others[place].value]] = await single.ask(others[place].value)
    return answers, [singles[other.value] for other in others]


def _answered(ask: Ask, answer: dict[str, Any]) -> Ask | None:
    """Return the second round to a challenge."""
    if (answer.get("deferred") or {}).get("type") != "challenge" or ask.machine is None:
        return None
    state = unb64(answer["deferred"]["state"])
    value = ask.machine.request(ask.payload, attestor=ask.attestor, state=state)
    return Ask(value, ask.attestor)
