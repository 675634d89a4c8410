"""One relay: look, send a wave, await its acknowledgements, move the cursors; and again.

Everything is one sequence of steps, so a shard never has two waves in flight, and a cursor moves
only over what Kafka has acknowledged.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.handlers.journal import SHARDS
from watchword.handlers.snapshots import Horizon, Snapshot
from watchword.handlers.store import relay as store
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.deployment import check_ids
from watchword.handlers.store.relay import Row
from watchword.streams import failpoints
from watchword.streams.relay import metrics
from watchword.streams.relay.options import RelayOptions
from watchword.streams.relay.projections import Projected
from watchword.streams.relay.publisher import MissingTopics, Outcome, Publisher
from watchword.streams.relay.shards import Shard, Shards, Trouble, View, Wave

_log = structlog.get_logger(__name__)

_LEAST_WAVE_S = 0.2
_PROBE_ROWS = 64
_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 5.0


class KafkaAway(Exception):
    """A wave failed as a whole."""


class Relay:
    """The state of one relay. `step` does one round; whoever calls it rests and backs off."""

    def __init__(self, options: RelayOptions) -> None:
        """Connect with the first step."""
        self.id = f"{options.name}-{secrets.token_hex(4)}"
        self.shards = Shards()
        self._options = options
        self._connection: Connection | None = None
        self._missing: MissingTopics = {}
        self._publisher = self._new_publisher()
        self._horizon = Horizon()
        self._lease_ends = 0.0
        self._lease_due = 0.0
        self._store_due = 0.0
        self._pending_due = 0.0

    # One round

    async def step(self) -> int:
        """Do one round; return how many rows were published.

        Raises:
            StoreUnavailable: PostgreSQL is away; leases and cursors were forgotten.
            StoreRejected: a statement was refused, which is our own bug, or the schema is another.
            KafkaAway: the wave failed; its cursors stay, and the next step sends it again.
        """
        try:
            connection = await self._connected()
            await self._keep_lease(connection)
            # Before the wave: while Kafka is away is when the backlog has to be seen.
            await self._housekeeping(connection)
            published = await self._publish_news(connection)
            published += await self._probe_troubled(connection)
        except (StoreUnavailable, StoreRejected):
            self._forget()
            raise
        return published

    async def _publish_news(self, connection: Connection) -> int:
        view = await self._look(connection)
        wave = await self._read(connection, view)
        outcome = await self._send(wave.rows)
        failed = {row.shard for at, row in enumerate(wave.rows) if at not in outcome.acknowledged}
        if outcome.rejected:
            self._suspect({wave.rows[at].shard for at in outcome.rejected})
        published = [shard for shard in wave.read if shard not in failed]
        await self._settle(connection, wave, published)
        self.shards.reached(view)
        if outcome.failure is not None:
            raise KafkaAway(outcome.failure)
        return len(outcome.acknowledged)

    async def _look(self, connection: Connection) -> View:
        snapshot, last_seq = await store.look(connection)
        self._horizon = self._horizon.seen(Snapshot.parse(snapshot))
        return View(snapshot, last_seq, self._horizon.floor)

    async def _read(self, connection: Connection, view: View) -> Wave:
        """Return what to send next: one query for the shards in step, one for those behind."""
        limit = self._options.wave_rows
        in_step, behind = self.shards.in_step(), self.shards.behind()
        wave = Wave(view, in_step + behind)
        if in_step and view.snapshot != self.shards.front:
            rows = await store.news(
                connection,
                in_step,
                seen=self.shards.front,
                until=view.snapshot,
                from_at=self.shards.floor_at(in_step),
                limit=limit + 1,
            )
            if len(rows) > limit:  # in no order, so not even the first of them can be sent
                behind = wave.read
            else:
                wave.rows = rows
        if behind:
            each = max(1, limit // len(behind))
            intervals = [self.shards.owned[n].interval(view) for n in behind]
            rows = await store.backlog(connection, intervals, limit=each)
            wave.cut = {n for n, count in _counts(rows).items() if count == each}
            wave.rows += rows
        wave.rows.sort(key=lambda row: (row.shard, row.seq))
        return wave

    async def _send(self, rows: Sequence[Row]) -> Outcome:
        if not rows:
            return Outcome()
        left = self._time_left()
        if left < _LEAST_WAVE_S:
            self._lease_due = 0.0
            return Outcome()
        failpoints.hit("relay-before-send")
        outcome = await self._published(self._publisher, rows, within_s=left)
        failpoints.hit("relay-after-send")
        self._count_wave(rows, outcome)
        return outcome

    async def _published(
        self, publisher: Publisher, rows: Sequence[Row], *, within_s: float, singly: bool = False
    ) -> Outcome:
        tracing, since_ns = self._options.tracing, time.time_ns()
        projected = Projected(rows, tenant_topics=self._options.tenant_topics)
        outcome = projected.folded(
            await publisher.publish(
                projected.rows, within_s=min(within_s, self._options.wave_s), singly=singly
            )
        )
        if tracing is not None:
            tracing.sent(rows, outcome, since_ns=since_ns)
        return outcome

    def _time_left(self) -> float:
        """Return how long a wave may take, in seconds: it must be over before the lease is."""
        return self._lease_ends - time.monotonic() - min(1.0, self._options.lease_s / 5)

    async def _settle(self, connection: Connection, wave: Wave, published: Sequence[int]) -> None:
        """Move the cursors over what was published: stored where there were rows, else in memory."""
        with_rows = {row.shard for row in wave.rows}
        advanced = self.shards.advanced(wave, published)
        in_memory = [
            s for s in advanced if s.cursor.shard not in with_rows and s.stored.to_snapshot is None
        ]
        self.shards.settle(in_memory, are_stored=False)
        kept = {s.cursor.shard for s in in_memory}
        await self._store(connection, [s for s in advanced if s.cursor.shard not in kept])

    async def _store(self, connection: Connection, shards: Sequence[Shard]) -> None:
        if not shards:
            return
        moved = await store.move(connection, self.id, [s.cursor for s in shards])
        self.shards.settle((s for s in shards if s.cursor.shard in moved), are_stored=True)
        lost = {s.cursor.shard for s in shards} - moved
        if lost:
            metrics.FENCED.inc(len(lost))
            _log.warning("shards lost", relay=self.id, shards=sorted(lost))
            self.shards.drop(lost)
            self._lease_due = 0.0

    # A shard with a record that Kafka rejects

    def _suspect(self, shards: Iterable[int]) -> None:
        """Have these shards go alone, one record at a time: a rejection may be a neighbour's fault."""
        for shard in shards:
            self.shards.owned[shard].trouble = Trouble(time.monotonic(), _FIRST_RETRY_S)

    async def _probe_troubled(self, connection: Connection) -> int:
        troubled = self.shards.troubled(time.monotonic())
        if not troubled:
            return 0
        # Another producer than that of the waves, which a rejection would wedge.
        publisher = self._new_publisher()
        try:
            return sum([await self._probe(connection, publisher, shard) for shard in troubled])
        finally:
            await publisher.close()

    async def _probe(self, connection: Connection, publisher: Publisher, number: int) -> int:
        """Send a suspect shard record by record, up to the one that is rejected, if any is."""
        left = self._time_left()
        if number not in self.shards.owned or left < _LEAST_WAVE_S:
            self._lease_due = 0.0
            return 0
        shard = self.shards.owned[number]
        view = await self._look(connection)
        rows = await store.backlog(connection, [shard.interval(view)], limit=_PROBE_ROWS)
        outcome = Outcome()
        if rows:
            outcome = await self._published(publisher, rows, within_s=left, singly=True)
        done = [row for at, row in enumerate(rows) if at in outcome.acknowledged]
        is_cut = len(done) < len(rows) or len(rows) == _PROBE_ROWS
        if done or not is_cut:
            await self._store(connection, [shard.after(view, done, is_cut=is_cut)])
        if number in self.shards.owned:
            self._judge_trouble(self.shards.owned[number], rows, outcome)
        if outcome.failure is not None:
            raise KafkaAway(outcome.failure)
        return len(done)

    def _judge_trouble(self, shard: Shard, rows: Sequence[Row], outcome: Outcome) -> None:
        trouble = shard.trouble
        if trouble is None or outcome.failure is not None:
            return
        if not outcome.rejected:
            shard.trouble = None
            return
        position, error = min(outcome.rejected.items())
        row = rows[position]
        if trouble.blocking is None or trouble.blocking.event_id != row.event_id:
            trouble = Trouble(0.0, _FIRST_RETRY_S, row)
            _log.error(
                "record rejected; its shard waits until it is accepted or parked",
                relay=self.id,
                event_id=str(row.event_id),
                seq=row.seq,
                shard=row.shard,
                topic=row.topic,
                error=error,
                bytes=len(row.key) + len(row.headers) + len(row.value),
            )
        metrics.REJECTED.labels(error).inc()
        shard.trouble = replace(
            trouble,
            retry_at=time.monotonic() + trouble.delay_s,
            delay_s=min(_LAST_RETRY_S, trouble.delay_s * 2),
        )

    # Leases, the connection, what is due now and then

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await store.open_connection(self._options.database)
        return self._connection

    async def _keep_lease(self, connection: Connection) -> None:
        now = time.monotonic()
        if now < self._lease_due:
            return
        lease = await store.lease(connection, self.id, seconds=self._options.lease_s, shards=SHARDS)
        self._lease_ends = now + self._options.lease_s
        self._horizon = self._horizon.marked(lease.mark)
        before = set(self.shards.owned)
        self.shards.hold(lease.held)
        if set(self.shards.owned) - before:
            await check_ids(connection)
        if before != set(self.shards.owned):
            _log.info(
                "shards changed", relay=self.id, held=len(self.shards.owned), share=lease.share
            )
        # Who has less than its share looks more often: others give up what they have too much of.
        is_short = len(lease.held) < lease.share
        self._lease_due = now + self._options.lease_s / (20 if is_short else 5)

    async def _housekeeping(self, connection: Connection) -> None:
        now = time.monotonic()
        if now >= self._store_due:
            self._store_due = now + self._options.store_idle_s
            await self._store(connection, self.shards.unstored())
        if now >= self._pending_due:
            self._pending_due = now + self._options.pending_s
            pending = await store.pending(connection)
            metrics.PENDING.set(pending.rows)
            metrics.OLDEST.set(pending.oldest_seconds)
        metrics.SHARDS.set(len(self.shards.owned))
        metrics.BLOCKED.set(len(self.blocked))

    @property
    def blocked(self) -> list[Row]:
        """The rows that Kafka rejects; each holds up its shard."""
        return [
            s.trouble.blocking
            for s in self.shards.owned.values()
            if s.trouble is not None and s.trouble.blocking is not None
        ]

    @property
    def missing_topics(self) -> list[str]:
        """The topics that rows name and Kafka does not have."""
        return sorted(self._missing)

    def _new_publisher(self) -> Publisher:
        return Publisher(self._options.kafka, request_s=self._options.wave_s, missing=self._missing)

    def _forget(self) -> None:
        """Drop the connection and all that was known under it: the lease may be anyone's now."""
        self.shards.clear()
        self._horizon = Horizon()
        self._lease_due = 0.0
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _count_wave(self, rows: Sequence[Row], outcome: Outcome) -> None:
        result = "failed" if outcome.failure else "rejected" if outcome.rejected else "acknowledged"
        metrics.WAVES.labels(result).inc()
        if result == "acknowledged":
            oldest = min(row.recorded_at for row in rows)
            metrics.LAG.observe(max(0.0, time.time() - oldest.timestamp()))

    async def close(self, *, is_idle: bool) -> None:
        """Give up the shards and hang up. `is_idle` says that no step was cut off: the connection is usable."""
        try:
            if not is_idle:
                self._forget()
            if self._connection is not None or not is_idle:
                await store.leave(await self._connected(), self.id)
        finally:
            self._forget()
            await self._publisher.close()


def _counts(rows: Iterable[Row]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.shard] = counts.get(row.shard, 0) + 1
    return counts
