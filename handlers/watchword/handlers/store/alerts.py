"""Alerts off the rows of refusals: what the keeper finds in the transaction that counts them.

Everything here runs in the keeper's own transaction, under its lease; `journal.append` stays its last statement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, cast

from watchword.handlers.alerts import (
    MANY_CREDENTIALS,
    WATCHED,
    AlertRules,
    Found,
    SubjectKind,
    Watched,
    new_reason,
)
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load
from watchword.handlers.windows import Bucket, Seen
from watchword.schemas.events import AlertKind
from watchword.schemas.ids import ROOT

Group = tuple[str, str, str]
"""Kind, tenant, attestor: what is quiet for a while after its alert."""


@dataclass(frozen=True, slots=True)
class _Statements:
    meet: str
    known: str
    groups: str
    is_due: str
    limits: str
    wait: str
    told: str
    find: str
    credentials: str


_SQL = load(_Statements, "alerts.sql")


async def is_due(connection: Connection) -> bool:
    """Tell whether something that happened while its alert was quiet can be told now."""
    found: bool = await connection.fetchval(_SQL.is_due)
    return found


async def look(
    connection: Connection,
    rules: AlertRules,
    seen: Mapping[Bucket, Seen],
    *,
    from_snapshot: str,
    until: str,
    now: datetime,
) -> list[Found]:
    """Return the alerts that are due after this look, and remember that they were told.

    `seen` is what became visible since `from_snapshot`, by bucket.
    """
    found = await _new_reasons(connection, seen, now)
    groups = {
        (row["kind"], row["tenant"], row["attestor"]): row
        for row in await connection.fetch(_SQL.groups)
    }
    happened: dict[Group, Watched] = {
        (watched.kind, tenant, attestor): watched
        for tenant, attestor, reason in seen
        if (watched := WATCHED.get(reason)) is not None
    }
    by_kind = {watched.kind: watched for watched in WATCHED.values()}
    pending = {
        group: by_kind[cast("AlertKind", group[0])]
        for group, row in groups.items()
        if row["is_pending"] and group[0] in by_kind
    }
    due: list[Group] = []
    quiet: list[Group] = []
    for group in sorted(happened | pending):
        row = groups.get(group)
        (due if row is None or row["is_due"] else quiet).append(group)
    if due:
        await connection.execute(_SQL.limits)
    for group in due:
        row = groups.get(group)
        # What is not pending was told up to here: nothing of it lies between.
        since = row["from_snapshot"] if row is not None and row["is_pending"] else from_snapshot
        one = await _find(connection, group, by_kind[cast("AlertKind", group[0])], since, until)
        if one is not None:
            found.append(one)
    if quiet:
        await connection.execute(_SQL.wait, *_columns(quiet))
    if due:
        await connection.execute(_SQL.told, *_columns(due), rules.repeat, until)
    return found


async def check_credentials(connection: Connection, rules: AlertRules, until: str) -> list[Found]:
    """Return who tried many credentials, unless that was told a moment ago; remember that it was told.

    At most one alert each for hardware keys and addresses. Root's: a machine that guesses tries those of any tenant.
    """
    await connection.execute(_SQL.limits)
    rows = await connection.fetch(_SQL.credentials, rules.window, rules.credentials)
    quiet = {
        row["attestor"]
        for row in await connection.fetch(_SQL.groups)
        if row["kind"] == MANY_CREDENTIALS and not row["is_due"]
    }
    found: list[Found] = []
    for kind, of_kind in groupby(
        sorted(rows, key=lambda row: str(row["subject_kind"])), lambda row: row["subject_kind"]
    ):
        if kind not in quiet:
            found.append(_many(kind, list(of_kind)))
    if found:
        told: list[Group] = [(MANY_CREDENTIALS, ROOT, one.subject_kind) for one in found]
        await connection.execute(_SQL.told, *_columns(told), rules.repeat, until)
    return found


async def _new_reasons(
    connection: Connection, seen: Mapping[Bucket, Seen], now: datetime
) -> list[Found]:
    """Return one alert for each reason that was never met before."""
    met: dict[tuple[str, str], int] = {}
    for (_, attestor, reason), counts in seen.items():
        met[attestor, reason] = met.get((attestor, reason), 0) + counts.recorded
    if not met:
        return []
    known = {(row["attestor"], row["reason"]) for row in await connection.fetch(_SQL.known)}
    fresh = sorted(met.keys() - known)
    if not fresh:
        return []
    rows = await connection.fetch(_SQL.meet, [a for a, _ in fresh], [r for _, r in fresh], now)
    told = sorted((row["attestor"], row["reason"]) for row in rows)
    return [new_reason(attestor, reason, met[attestor, reason], now) for attestor, reason in told]


async def _find(
    connection: Connection, group: Group, watched: Watched, since: str, until: str
) -> Found | None:
    kind, tenant, attestor = group
    reasons = [name for name, one in WATCHED.items() if one.kind == kind]
    row = await connection.fetchrow(
        _SQL.find, tenant, attestor, reasons, since, until, watched.subject_kind
    )
    if row is None or not row["refusals"]:
        return None
    one_reason = row["one_reason"] if row["one_reason"] == row["other_reason"] else None
    return Found(
        kind=watched.kind,
        tenant=tenant,
        attestor=attestor,
        refusal=None if one_reason is None else f"{attestor}:{one_reason}",
        refusals=row["refusals"],
        subjects=row["subjects"],
        subject_kind=watched.subject_kind,
        examples=tuple(row["examples"]),
        request_ids=tuple(row["request_ids"]),
        first_time=row["first_time"],
        last_time=row["last_time"],
    )


def _many(kind: str, rows: Sequence[Any]) -> Found:
    return Found(
        kind=MANY_CREDENTIALS,
        tenant=ROOT,
        attestor=None,
        refusal=None,
        refusals=sum(row["refusals"] for row in rows),
        subjects=len(rows),
        subject_kind=cast("SubjectKind", kind),
        examples=tuple(row["subject"] for row in rows),
        request_ids=tuple(rows[0]["request_ids"] or ()),
        first_time=min(row["first_time"] for row in rows),
        last_time=max(row["last_time"] for row in rows),
    )


def _columns(groups: Iterable[Group]) -> tuple[list[str], list[str], list[str]]:
    rows = list(groups)
    return [g[0] for g in rows], [g[1] for g in rows], [g[2] for g in rows]
