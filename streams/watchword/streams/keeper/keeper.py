"""One keeper: it has the lease and works, or stands by."""

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta

import structlog

from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.snapshots import Horizon, Snapshot
from watchword.handlers.store import commands, partitions, standing, summaries
from watchword.handlers.store import keeper as store
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.deployment import check_ids
from watchword.handlers.store.keeper import LeaseLost, Tenure
from watchword.handlers.store.summaries import SummaryRules
from watchword.schemas.events import AlertKind
from watchword.streams import failpoints
from watchword.streams.keeper import metrics
from watchword.streams.keeper.options import KeeperOptions

_log = structlog.get_logger(__name__)

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S
_EXPIRING_DAYS = (1, 7)


class Keeper:
    """The state of one keeper. `step` does one round; whoever calls it rests and backs off."""

    def __init__(self, options: KeeperOptions) -> None:
        """Connect with the first step."""
        self.id = f"{options.name}-{secrets.token_hex(4)}"
        self.days_ahead: float | None = None
        self._options = options
        self._rules = SummaryRules(
            timedelta(seconds=options.period_s),
            options.limit,
            options.source,
            alerts=options.alerts,
        )
        self._connection: Connection | None = None
        self._tenure: Tenure | None = None
        self._lease_due = 0.0
        self._horizon = Horizon()
        self._upkeep_due = 0.0
        # Whoever takes the lease over does not know what its predecessor has looked at.
        self._has_tries = True
        self._tries_due = 0.0

    async def step(self) -> bool:
        """Do what is due; return whether this keeper has the lease.

        Raises:
            StoreUnavailable: PostgreSQL is away.
            StoreRejected: a statement was refused, which is our own bug, or the schema is another.
        """
        try:
            connection = await self._connected()
            try:
                if await self._held(connection) is None:
                    return False
                await self._summarise(connection)
                await self._check_credentials(connection)
                if time.monotonic() >= self._upkeep_due:
                    await self._upkeep(connection)
                    self._upkeep_due = time.monotonic() + self._options.upkeep_s
            except LeaseLost:
                _log.warning("lease lost", keeper=self.id)
                self._stand_by()
                return False
        except Exception:
            self.forget()
            raise
        metrics.LAST_ROUND.set_to_current_time()
        return True

    async def _held(self, connection: Connection) -> Tenure | None:
        """Return the lease, prolonged when a third of it is over."""
        now = time.monotonic()
        if now < self._lease_due:
            return self._tenure
        tenure = await store.take_lease(connection, self.id, seconds=self._options.lease_s)
        self._lease_due = now + self._options.lease_s / 3
        if tenure is None:
            self._stand_by()
            return None
        if self._tenure is None:
            await check_ids(connection)
            _log.info("lease taken", keeper=self.id, epoch=tenure.epoch)
        self._horizon = self._horizon.marked(tenure.mark)
        self._tenure = tenure
        metrics.ACTIVE.set(1)
        return tenure

    async def _tenured(self, connection: Connection) -> Tenure:
        tenure = await self._held(connection)
        if tenure is None:
            raise LeaseLost
        return tenure

    # Refusals

    async def _summarise(self, connection: Connection) -> None:
        while await summaries.is_due(connection, self._rules):
            tenure = await self._tenured(connection)
            snapshot = await summaries.snapshot(connection)
            self._horizon = self._horizon.seen(Snapshot.parse(snapshot))
            told = await summaries.summarise(connection, tenure, self._rules, self._horizon.floor)
            failpoints.hit("keeper-after-summary")
            metrics.SUMMARIES.inc(told.summaries)
            metrics.SUPPRESSED.inc(told.suppressed)
            for (_, attestor, reason), seen in told.recorded.items():
                metrics.RECORDED.labels(attestor, reason).inc(seen.recorded)
            self._tell(told.alerts)
            self._has_tries = self._has_tries or bool(told.recorded)
            if told.summaries:
                _log.info(
                    "refusals summarised", summaries=told.summaries, held_back=told.suppressed
                )
            if not told.has_more:
                return

    async def _check_credentials(self, connection: Connection) -> None:
        """Look now and then, while there are refusals, for machines that try many credentials."""
        now = time.monotonic()
        if not self._has_tries or now < self._tries_due:
            return
        tenure = await self._tenured(connection)
        self._tries_due = now + self._options.credentials_s
        self._has_tries = False
        self._tell(await summaries.check_credentials(connection, tenure, self._rules))

    def _tell(self, alerts: Sequence[AlertKind]) -> None:
        for kind in alerts:
            metrics.ALERTS.labels(kind).inc()
            _log.warning("alert", kind=kind)

    # Upkeep

    async def _upkeep(self, connection: Connection) -> None:
        options = self._options
        made = await partitions.make(connection, days_ahead=options.partition_days_ahead)
        metrics.PARTITIONS_MADE.inc(made)
        self.days_ahead = await partitions.days_ahead(connection)
        metrics.DAYS_AHEAD.set(self.days_ahead)
        if self.days_ahead < options.partition_alarm_days:
            _log.error("partitions run short", days_ahead=round(self.days_ahead, 1))
        for days in _EXPIRING_DAYS:
            metrics.EXPIRING.labels(str(days)).set(await standing.expiring(connection, days))
        await self._expire_requests(connection)
        await self._expire_commands(connection)
        await self._prune_rows(connection)
        await self._pass_over_quiet(connection)
        await self._drop_partitions()

    async def _expire_requests(self, connection: Connection) -> None:
        count = store.PRUNED_AT_ONCE
        while count >= store.PRUNED_AT_ONCE:
            tenure = await self._tenured(connection)
            count = await store.expire_requests(connection, tenure, source=self._options.source)
            metrics.EXPIRED.inc(count)
            if count:
                _log.info("waiting joins expired", joins=count)
        waiting = await store.waiting(connection)
        metrics.WAITING.set(waiting.joins)
        metrics.OLDEST_WAITING.set(waiting.oldest_s)

    async def _expire_commands(self, connection: Connection) -> None:
        count = store.PRUNED_AT_ONCE
        while count >= store.PRUNED_AT_ONCE:
            tenure = await self._tenured(connection)
            count = await store.expire_commands(connection, tenure, source=self._options.source)
            metrics.EXPIRED_COMMANDS.inc(count)
            if count:
                _log.info("commands expired", commands=count)
        waiting = await commands.waiting(connection)
        for state in ("queued", "dispatched"):
            metrics.OPEN_COMMANDS.labels(state).set(waiting.get(state, 0))

    async def _prune_rows(self, connection: Connection) -> None:
        options = self._options
        is_more = True
        while is_more:
            tenure = await self._tenured(connection)
            pruned = {
                "inbox": await store.prune_inbox(
                    connection, tenure, older_than_s=options.inbox_retention_h * _HOUR_S
                ),
                "attestation_uses": await store.prune_uses(
                    connection, tenure, expired_for_s=options.use_grace_h * _HOUR_S
                ),
                "join_requests": await store.prune_requests(
                    connection, tenure, over_for_s=options.join_request_retention_days * _DAY_S
                ),
                "node_commands": await store.prune_commands(
                    connection, tenure, ended_for_s=options.command_retention_days * _DAY_S
                ),
                "explain_jobs": await store.prune_explain_jobs(
                    connection, tenure, expired_for_s=_HOUR_S
                ),
                "leases": await store.prune_leases(connection, tenure, expired_for_s=_HOUR_S),
            }
            for table, count in pruned.items():
                metrics.PRUNED.labels(table).inc(count)
            is_more = max(pruned.values()) >= store.PRUNED_AT_ONCE

    async def _pass_over_quiet(self, connection: Connection) -> None:
        """Move the cursor on when there are no refusals, so that old partitions may go."""
        snapshot = await summaries.snapshot(connection)
        self._horizon = self._horizon.seen(Snapshot.parse(snapshot))
        if self._horizon.floor is not None:
            tenure = await self._tenured(connection)
            await summaries.pass_over(connection, tenure, snapshot, self._horizon.floor)

    async def _drop_partitions(self) -> None:
        connection = await self._options.database.connect()
        try:
            dropped = await partitions.drop_expired(
                connection, retention_days=self._options.refusal_retention_days
            )
        except StoreUnavailable as error:
            # A lock that was not to be had in time: nothing is half done that is not finished later.
            _log.warning("partitions not dropped", error=str(error))
            return
        finally:
            connection.terminate()
        if dropped:
            metrics.PARTITIONS_DROPPED.inc(len(dropped))
            _log.info("partitions dropped", partitions=dropped)

    # The connection

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await store.open_connection(self._options.database)
        return self._connection

    def _stand_by(self) -> None:
        self._tenure = None
        self._horizon = Horizon()
        self._has_tries = True
        metrics.ACTIVE.set(0)

    def forget(self) -> None:
        """Drop the connection, and the lease with it: it may be anyone's now."""
        self._stand_by()
        self._lease_due = 0.0
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self, *, is_idle: bool) -> None:
        """Release the lease and hang up. `is_idle` says that no step was cut off: the connection is usable."""
        had_lease = self._tenure is not None
        try:
            if not is_idle:
                self.forget()
            if had_lease:
                await store.release_lease(await self._connected(), self.id)
        finally:
            self.forget()
