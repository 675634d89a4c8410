"""Switches of guards that only show when processes die: thrown in every process of a deployment.

`tests.faults.seams.points` throws the one that the fault suite names, at the start of a process.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import asyncpg

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


def every_copy_is_judged() -> None:
    """Let every delivery claim its digest, and look for no outcome that is there."""
    from watchword.handlers.store import joins  # noqa: PLC0415
    from watchword.handlers.store.join_statements import JOINS  # noqa: PLC0415

    condition = "WHERE inbox.not_after <= $2"
    if condition not in JOINS.claim_inbox:
        message = "the claim is written in another way now"
        raise RuntimeError(message)
    whoever = JOINS.claim_inbox.replace(condition, "WHERE $2::timestamptz IS NOT NULL")
    _replace(joins, "JOINS", replace(JOINS, claim_inbox=whoever))
    look: Any = joins.JoinSession.look

    async def look_away(self: Any, *arguments: Any) -> Any:  # noqa: ANN401
        return replace(await look(self, *arguments), inbox={})

    _replace(joins.JoinSession, "look", look_away)


def refusals_keep_what_was_written() -> None:
    """Leave the savepoint of a verifier's own SQL where it is."""
    from watchword.handlers.store import joins  # noqa: PLC0415

    async def rollback_to_savepoint(self: Any) -> None:  # noqa: ANN401
        del self

    _replace(joins.JoinSession, "rollback_to_savepoint", rollback_to_savepoint)


def numbers_are_drawn_ahead() -> None:
    """Have each session draw 500 of the journal's numbers at once, long before it uses them."""
    from watchword.handlers.store.connection import Database  # noqa: PLC0415

    connect: Any = Database.connect

    async def connect_and_cache(self: Any, **named: Any) -> Any:  # noqa: ANN401
        connection = await connect(self, **named)
        # Two at once get in each other's way; one of them is enough.
        with suppress(asyncpg.PostgresError):
            await connection.execute(
                "DO $$ BEGIN EXECUTE format('ALTER SEQUENCE %s CACHE 500', "
                "pg_get_serial_sequence('watchword.journal', 'seq')); END $$"
            )
        return connection

    _replace(Database, "connect", connect_and_cache)


PROCESS_SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        answers_come_after_the_offset,
        some_batches_are_slow,
        the_highest_offset_counts,
        a_wedged_producer_is_kept,
        cursors_move_without_a_fence,
        tokens_are_not_locked,
        every_copy_is_judged,
        refusals_keep_what_was_written,
        numbers_are_drawn_ahead,
    )
}
