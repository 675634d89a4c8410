"""Refusal slots: at most so many published details per bucket in any sliding window, over all workers.

A bucket is (tenant stream, attestor, reason); it has as many rows as the window may publish. A detail
needs a row whose last claim is older than the window. Nobody waits (SKIP LOCKED), a rollback gives
rows back, and a process that found a bucket full does not ask again until its oldest claim has aged. Rows of a
new bucket are made in a transaction of their own: made in the batch's, they would have whoever meets the same
new bucket wait for that batch.
"""

import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from watchword.handlers.rows import Bucket
from watchword.handlers.store.connection import Connection, hang_up
from watchword.handlers.store.join_reads import columns
from watchword.handlers.store.join_statements import SLOTS
from watchword.handlers.store.translate import FOREIGN, translate

EXEMPT = 5
"""The first slots of a reason stay outside the attestor's common bucket, so that noise hides no reason."""

Connect = Callable[[], Awaitable[Connection]]

_WIDTH = 3
"""Of a bucket: tenant, attestor, reason."""

_MAKE_LOCK = 0x736C6F7473
"""The advisory lock of whoever makes slots (`slots` in ASCII)."""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How many details a bucket publishes in any `window_s` seconds."""

    per_reason: int = 60
    per_attestor: int = 300
    window_s: float = 60.0


@dataclass(slots=True)
class Learned:
    """What one transaction has seen of buckets. True for others only once it has committed."""

    closed_until: dict[Bucket, float] = field(default_factory=dict[Bucket, float])
    gone: set[Bucket] = field(default_factory=set[Bucket])


class Slots:
    """Claims slots; one object per process, because it remembers which buckets are closed."""

    def __init__(
        self,
        limits: SlotLimits,
        connect: Connect,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` opens the connection on which new buckets are made.

        `monotonic` gives seconds; it only spares queries and never opens a bucket early.
        """
        self.limits = limits
        self._connect = connect
        self._monotonic = monotonic
        self._made: set[Bucket] = set()
        self._closed_until: dict[Bucket, float] = {}

    def remember(self, learned: Learned) -> None:
        """Take over what a transaction learned, now that it has committed."""
        self._made -= learned.gone
        self._closed_until.update(learned.closed_until)

    async def claim(
        self, connection: Connection, need: Mapping[Bucket, int], learned: Learned
    ) -> dict[Bucket, int]:
        """Return how many of each bucket's details may be published, claimed in the open transaction."""
        now = self._monotonic()
        asked = {
            bucket: min(count, self.limits.per_reason)
            for bucket, count in need.items()
            if self._closed_until.get(bucket, 0.0) <= now
        }
        if not asked:
            return {}
        try:
            await self._make(connection, asked)
            rows = await connection.fetch(
                SLOTS.claim,
                *columns(list(asked), _WIDTH),
                list(asked.values()),
                self.limits.window_s,
                EXEMPT,
                self.limits.per_reason,
                self.limits.per_attestor,
            )
            granted = {(row[0], row[1], row[2]): int(row[3]) for row in rows}
            if full := [
                bucket for bucket, count in asked.items() if granted.get(bucket, 0) < count
            ]:
                await self._close(connection, full, now, learned)
        except FOREIGN as error:
            raise translate(error) from error
        return granted

    async def _make(self, connection: Connection, buckets: Collection[Bucket]) -> None:
        wanted = set(buckets) | {(tenant, attestor, "*") for tenant, attestor, _ in buckets}
        if not (unknown := wanted - self._made):
            return
        sizes = (self.limits.per_reason, self.limits.per_attestor)
        rows = await connection.fetch(SLOTS.lacking, *columns(list(unknown), _WIDTH), *sizes)
        if rows:
            await self._apart(SLOTS.make, *columns([tuple(row) for row in rows], _WIDTH), *sizes)
        self._made |= unknown

    async def _apart(self, statement: str, *arguments: object) -> None:
        own = await self._connect()
        try:
            async with own.transaction():
                await own.execute("SELECT pg_advisory_xact_lock($1)", _MAKE_LOCK)
                await own.execute(statement, *arguments)
        except BaseException:
            own.terminate()
            raise
        await hang_up(own)

    async def _close(
        self, connection: Connection, full: list[Bucket], now: float, learned: Learned
    ) -> None:
        rows = await connection.fetch(
            SLOTS.reopens,
            *columns(full, _WIDTH),
            self.limits.window_s,
            EXEMPT,
            self.limits.per_reason,
            self.limits.per_attestor,
        )
        for tenant, attestor, reason, seconds in rows:
            bucket = (tenant, attestor, reason)
            if (
                seconds is None
            ):  # somebody has taken the rows away: the next refusal makes them anew
                learned.gone |= {bucket, (tenant, attestor, "*")}
                continue
            # Jitter, so that workers do not all ask at the moment a bucket opens.
            pause = min(max(float(seconds), 0.02), self.limits.window_s) + random.random() * 0.05  # noqa: S311 - no secret
            learned.closed_until[bucket] = now + pause
