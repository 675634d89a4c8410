"""The count of refusals: what became visible is counted, what is due is told, and the cursor moves on.

Each function is a short transaction of its own, fenced by the keeper's lease. Locks (DESIGN, section 5): the
lease, the cursor, the windows, then the journal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from watchword.handlers import alerts as alerting
from watchword.handlers.alerts import AlertRules
from watchword.handlers.snapshots import Floor, Snapshot
from watchword.handlers.store import alerts, journal
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.keeper import Tenure, hold
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated
from watchword.handlers.windows import (
    Bucket,
    Counts,
    Due,
    Limit,
    Look,
    Seen,
    Window,
    is_over,
    look,
    summaries,
)
from watchword.schemas.events import AlertKind


@dataclass(frozen=True, slots=True)
class _Statements:
    cursor: str
    lock_cursor: str
    move_cursor: str
    until: str
    is_due: str
    last_xid: str
    count: str
    windows: str
    summary_limits: str
    summarise: str
    open_windows: str
    close_windows: str
    grow_windows: str


_SQL = load(_Statements, "summaries.sql")

_PATIENCE_S = 65.0


@dataclass(frozen=True, slots=True)
class SummaryRules:
    """How refusals are summarised. `at_once` rows are counted in one transaction."""

    period: timedelta
    limit: Limit
    source: str
    at_once: int = 20_000
    alerts: AlertRules = field(default_factory=AlertRules)


@dataclass(frozen=True, slots=True)
class Told:
    """What one look at the refusals told. `has_more`: it stopped at its limit."""

    summaries: int = 0
    suppressed: int = 0
    has_more: bool = False
    recorded: Mapping[Bucket, Seen] = field(default_factory=dict[Bucket, Seen])
    """What became visible, by bucket."""
    alerts: tuple[AlertKind, ...] = ()


async def is_due(connection: Connection, rules: SummaryRules) -> bool:
    """Tell whether `summarise` would find something; writes nothing."""
    async with translated():
        seen, from_at = await _one(connection, _SQL.cursor)
        found: bool = await connection.fetchval(
            _SQL.is_due, seen, from_at, rules.period.total_seconds()
        )
        return found or await alerts.is_due(connection)


async def pass_over(connection: Connection, tenure: Tenure, until: str, floor: Floor) -> None:
    """Move the cursor over an interval in which `is_due` found nothing: a successor starts near."""
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        seen, from_at = await _one(connection, _SQL.lock_cursor)
        counted = await connection.fetch(_SQL.count, seen, until, from_at)
        if not counted:
            await connection.execute(_SQL.move_cursor, until, floor.at)


async def snapshot(connection: Connection) -> str:
    """Return the snapshot of now."""
    async with translated():
        text, _ = await _one(connection, _SQL.until)
        return str(text)


async def summarise(
    connection: Connection, tenure: Tenure, rules: SummaryRules, floor: Floor | None
) -> Told:
    """Count what became visible, tell what is due, and move the cursor: one transaction.

    `floor` bounds what any snapshot from now on hides.

    Raises:
        LeaseLost: another keeper has it; nothing was told.
    """
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        seen, from_at = await _one(connection, _SQL.lock_cursor)
        visible, now = await _one(connection, _SQL.until)
        until, has_more = await _end(connection, rules, seen, from_at, visible)
        counted = await connection.fetch(_SQL.count, seen, until, from_at)
        new = {_bucket(row): Seen(*row[3:]) for row in counted}
        plan = look(
            {_bucket(row): Window(*row[3:]) for row in await connection.fetch(_SQL.windows)},
            new,
            now=now,
            from_snapshot=seen,
            period=rules.period,
        )
        counts = await _counts(connection, plan.due, until)
        await _keep_windows(connection, plan, counts, now, until)
        found = await alerts.look(
            connection, rules.alerts, new, from_snapshot=seen, until=until, now=now
        )
        if floor is not None and not has_more:
            from_at = floor.at
        await connection.execute(_SQL.move_cursor, until, from_at)
        # Last, as everywhere: `seq` is drawn while the cursor is locked.
        await journal.append(
            connection,
            [
                *summaries(plan.due, counts, now=now, limit=rules.limit, source=rules.source),
                *alerting.alerts(found, now=now, source=rules.source),
            ],
        )
    return Told(
        len(plan.due),
        sum(c.suppressed for c in counts.values()),
        has_more,
        new,
        tuple(one.kind for one in found),
    )


async def check_credentials(
    connection: Connection, tenure: Tenure, rules: SummaryRules
) -> tuple[AlertKind, ...]:
    """Look for machines and addresses that try many credentials; return the alerts that were told.

    Raises:
        LeaseLost: another keeper has it; nothing was told.
    """
    async with translated(), connection.transaction():
        await hold(connection, tenure)
        until, now = await _one(connection, _SQL.until)
        found = await alerts.check_credentials(connection, rules.alerts, until)
        await journal.append(connection, alerting.alerts(found, now=now, source=rules.source))
    return tuple(one.kind for one in found)


async def _end(
    connection: Connection, rules: SummaryRules, seen: str, from_at: str, visible: str
) -> tuple[str, bool]:
    """Return the snapshot at which this look ends: that of now, or one that has fewer transactions."""
    last, count = await _one(connection, _SQL.last_xid, seen, from_at, rules.at_once)
    if count < rules.at_once:
        return visible, False
    return str(Snapshot.parse(visible).up_to(int(last))), True


async def _counts(
    connection: Connection, due: Mapping[Bucket, Due], until: str
) -> dict[Bucket, Counts]:
    if not due:
        return {}
    await connection.execute(_SQL.summary_limits)
    rows = await connection.fetch(
        _SQL.summarise,
        *_columns(due),
        [one.from_snapshot for one in due.values()],
        until,
        timeout=_PATIENCE_S,
    )
    return {
        _bucket(row): Counts(
            recorded=row["recorded"],
            published=row["published"],
            distinct_csrs=row["csrs"],
            distinct_hardware_keys=row["hardware_keys"],
            first_time=row["first_time"],
            last_time=row["last_time"],
            request_ids=tuple(row["request_ids"]),
        )
        for row in rows
    }


async def _keep_windows(
    connection: Connection, plan: Look, counts: Mapping[Bucket, Counts], now: datetime, until: str
) -> None:
    over = [bucket for bucket, due in plan.due.items() if is_over(due, counts[bucket])]
    going_on = [bucket for bucket in plan.due if bucket not in over]
    if going_on:
        await connection.execute(_SQL.open_windows, *_columns(going_on), now, until)
    if over:
        await connection.execute(_SQL.close_windows, *_columns(over))
    if plan.grown:
        await connection.execute(
            _SQL.grow_windows, *_columns(plan.grown), list(plan.grown.values())
        )


async def _one(connection: Connection, statement: str, *arguments: object) -> tuple[Any, ...]:
    row = await connection.fetchrow(statement, *arguments)
    return () if row is None else tuple(row.values())


def _bucket(row: Any) -> Bucket:  # noqa: ANN401 - a record
    return (row["tenant"], row["attestor"], row["reason"])


def _columns(buckets: Iterable[Bucket]) -> tuple[list[str], list[str], list[str]]:
    rows = list(buckets)
    return [b[0] for b in rows], [b[1] for b in rows], [b[2] for b in rows]
