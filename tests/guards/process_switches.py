"""Switches of guards that only show when processes die: thrown in every process of a deployment.

`tests.faults.seams.points` throws the one that the fault suite names, at the start of a process.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

_COMMITTED_S = 1.5
"""In this time what is done has been committed to Kafka."""


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def answers_come_after_the_offset() -> None:
    """Mark requests as done before their answers are acknowledged."""
    from watchword.streams import failpoints  # noqa: PLC0415 - only in the processes that need it
    from watchword.streams.worker.batches import Batches  # noqa: PLC0415

    async def carry_out(self: Any, batch: Sequence[Any]) -> None:  # noqa: ANN401
        outgoing = await self._judge(batch)
        for delivery in batch:
            self._parts.backlog.finish(delivery)
        await asyncio.sleep(_COMMITTED_S)
        failpoints.hit("after-commit-before-response")
        await self._parts.answers.send(outgoing)
        failpoints.hit("after-response-before-offset")

    _replace(Batches, "_carry_out", carry_out)


def some_batches_are_slow() -> None:
    """Let every fifth batch take its time; no guard is off, and with all in place nothing may be lost."""
    from watchword.streams.worker.batches import Batches  # noqa: PLC0415

    judge: Any = Batches._judge
    batches = 0

    async def judge_slowly(self: Any, batch: Sequence[Any]) -> Any:  # noqa: ANN401
        nonlocal batches
        batches += 1
        if batches % 5 == 0:
            await asyncio.sleep(_COMMITTED_S)
        return await judge(self, batch)

    _replace(Batches, "_judge", judge_slowly)


def the_highest_offset_counts() -> None:
    """Commit the highest offset that is done, whatever is still being judged below it."""
    from watchword.streams.worker.prefix import Prefix  # noqa: PLC0415

    def done(self: Any, offset: int) -> None:  # noqa: ANN401
        self._committable = max(self._committable, offset + 1)

    _replace(Prefix, "done", done)


def a_wedged_producer_is_kept() -> None:
    """Go on with a producer that was refused something."""
    from watchword.streams.relay.publisher import Publisher  # noqa: PLC0415

    async def close(self: Any) -> None:  # noqa: ANN401
        del self

    _replace(Publisher, "close", close)


def cursors_move_without_a_fence() -> None:
    """Let whoever lost a shard still move its cursor."""
    from watchword.handlers.store import relay  # noqa: PLC0415

    fence = "WHERE c.shard = said.shard AND c.owner = $1 AND c.epoch = said.epoch AND c.expires_at > clock_timestamp()"
    without = "WHERE c.shard = said.shard AND $1::text IS NOT NULL AND said.epoch IS NOT NULL"
    if fence not in relay.SQL.move:
        message = "the fence is written in another way now"
        raise RuntimeError(message)
    _replace(relay, "SQL", replace(relay.SQL, move=relay.SQL.move.replace(fence, without)))


def tokens_are_not_locked() -> None:
    """Decide on the uses that a token had before the batch."""
    from watchword.handlers.store import joins  # noqa: PLC0415
    from watchword.handlers.store.join_statements import JOINS  # noqa: PLC0415

    statement = JOINS.lock_tokens
    if "FOR NO KEY UPDATE" not in statement:
        message = "the lock is written in another way now"
        raise RuntimeError(message)
    unlocked = replace(JOINS, lock_tokens=statement.replace("FOR NO KEY UPDATE", ""))
    _replace(joins, "JOINS", unlocked)


PROCESS_SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        answers_come_after_the_offset,
        some_batches_are_slow,
        the_highest_offset_counts,
        a_wedged_producer_is_kept,
        cursors_move_without_a_fence,
        tokens_are_not_locked,
    )
}
