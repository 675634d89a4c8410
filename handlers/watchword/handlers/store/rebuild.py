"""`watchword rebuild --check`: folds the journal into empty tables and compares them with the real ones.

Everything is read in one REPEATABLE READ snapshot, and events commit together with what they
describe, so a difference is a bug (or somebody's hand) and never a race. The rebuilt tables are
temporary: nothing of the database is changed, and nothing is left behind.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from watchword.handlers.journal import SHARDS
from watchword.handlers.rebuild.batches import Batch, batches
from watchword.handlers.rebuild.fold import (
    GENESIS,
    KEYS,
    Add,
    Delete,
    EventBroken,
    EventUnknown,
    Operation,
    Put,
    fold,
)
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated
from watchword.schemas.canonical import unb64
from watchword.schemas.errors import NotCanonical

_AT_ONCE = 2_000
_PATIENCE_S = 3600.0
_SAMPLES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LASTING = {
    "attestation_uses": "expires_at IS NULL OR expires_at > '{now}'",
    "node_commands": "ended_at IS NULL OR ended_at > '{now}'::timestamptz - interval '1 day'",
    "join_requests": "state IN ('pending', 'approved') OR expires_at > '{now}'::timestamptz - interval '1 day'",
}
"""Which rows are compared: the others are pruned, without an event."""


@dataclass(frozen=True, slots=True)
class _Statements:
    limits: str
    columns: str
    now: str
    events_of_shard: str
    events: str
    create: str
    put: str
    change: str
    take_away: str
    count: str
    compare: str


_SQL = load(_Statements, "rebuild.sql")


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of a table that the journal does not explain, or explains otherwise."""

    table: str
    only_in_table: int
    only_in_journal: int
    keys: Sequence[str]
    """Some of them: JSON objects of the key's columns."""


@dataclass(frozen=True, slots=True)
class Check:
    """What the check found; `differences` is empty if every table is the projection of the journal."""

    events: int
    rows: Mapping[str, int]
    differences: Sequence[Difference]
    problems: Sequence[str] = ()
    """Events that could not be folded, at most ten; the differences then say little."""


async def check(database: Database) -> Check:
    """Fold the domain journal in the order of `seq`, and compare every table in both directions.

    Memory stays small whatever the journal's length; the rebuilt tables are on PostgreSQL's disk. The
    snapshot that is held keeps vacuum back while it lasts.

    Raises:
        StoreUnavailable: PostgreSQL is away, or ended the connection.
        StoreRejected: an event holds what does not fit its column.
    """
    connection = await database.connect()
    try:
        async with translated(), connection.transaction(isolation="repeatable_read"):
            await connection.execute(_SQL.limits)
            return await _Rebuild(connection, await _columns(connection)).check()
    finally:
        connection.terminate()


async def _columns(connection: Connection) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {table: {} for table in KEYS}
    for table, name, kind in await connection.fetch(_SQL.columns, list(KEYS)):
        found[table][name] = kind
    return found


class _Rebuild:
    """The temporary tables of one check. Names in statements are from `KEYS` and the catalogue."""

    def __init__(self, connection: Connection, columns: Mapping[str, Mapping[str, str]]) -> None:
        self._connection = connection
        self._columns = columns
        self._problems: list[str] = []

    async def check(self) -> Check:
        for table, keys in KEYS.items():
            await self._run(_SQL.create.format(table=table, keys=", ".join(keys)))
        await self._apply(GENESIS)
        events = await self._fold()
        now: datetime = await self._connection.fetchval(_SQL.now)
        rows: dict[str, int] = {}
        differences: list[Difference] = []
        for table in KEYS:
            wanted = _LASTING.get(table, "true").format(now=now.isoformat())
            count = _SQL.count.format(table=table, wanted=wanted)
            rows[table] = await self._connection.fetchval(count, timeout=_PATIENCE_S)
            if found := await self._compare(table, wanted):
                differences.append(found)
        return Check(events, rows, differences, self._problems)

    async def _fold(self) -> int:
        """Apply all events; return how many there were."""
        shards = [_SQL.events_of_shard.format(shard=shard) for shard in range(SHARDS)]
        cursor = await self._connection.cursor(_SQL.events.format(union=" UNION ALL ".join(shards)))
        events = 0
        while found := await cursor.fetch(_AT_ONCE, timeout=_PATIENCE_S):
            events += len(found)
            operations: list[Operation] = []
            for event_id, event_type, private in found:
                operations += self._operations(str(event_id), event_type, private)
            await self._apply(operations)
        return events

    def _operations(self, event_id: str, event_type: str, private: bytes | None) -> list[Operation]:
        try:
            return fold(event_type, None if private is None else json.loads(private))
        except (EventUnknown, EventBroken, ValueError) as error:
            if len(self._problems) < _SAMPLES:
                self._problems.append(f"event {event_id}: {error}")
            return []

    async def _apply(self, operations: Sequence[Operation]) -> None:
        for batch in batches(operations):
            kinds = self._columns[batch.table]
            rows = [
                {name: _decoded(kinds.get(name, ""), value) for name, value in row.items()}
                for row in batch.rows.values()
            ]
            await self._run(self._statement(batch), json.dumps(rows))

    def _statement(self, batch: Batch) -> str:
        table, keys, known = batch.table, KEYS[batch.table], self._columns[batch.table]
        if batch.kind is Put:
            changes = ", ".join(f"{name} = excluded.{name}" for name in known)
            return _SQL.put.format(table=table, keys=", ".join(keys), changes=changes)
        on_key = " AND ".join(f"t.{name} = n.{name}" for name in keys)
        if batch.kind is Delete:
            return _SQL.take_away.format(table=table, on_key=on_key)
        new = "{0} = t.{0} + n.{0}" if batch.kind is Add else "{0} = n.{0}"
        changed = [new.format(name) for name in batch.columns if name in known]
        changed += [f"{n} = coalesce(t.{n}, n.{n})" for n in batch.unless_set if n in known]
        return _SQL.change.format(table=table, changes=", ".join(changed), on_key=on_key)

    async def _compare(self, table: str, wanted: str) -> Difference | None:
        counts: list[int] = []
        samples: list[str] = []
        for one, other in ((table, f"rebuilt_{table}"), (f"rebuilt_{table}", table)):
            statement = _SQL.compare.format(
                one=one,
                other=other,
                wanted=wanted,
                columns=", ".join(self._columns[table]),
                keys=", ".join(KEYS[table]),
                samples=_SAMPLES,
            )
            for count, keys in await self._connection.fetch(statement, timeout=_PATIENCE_S):
                counts.append(count)
                samples += [key for key in keys if key not in samples]
        if not any(counts):
            return None
        return Difference(table, counts[0], counts[1], samples[:_SAMPLES])

    async def _run(self, statement: str, *arguments: object) -> None:
        await self._connection.execute(statement, *arguments, timeout=_PATIENCE_S)


def _decoded(kind: str, value: Any) -> Any:  # noqa: ANN401 - what a column holds
    if value is None:
        return None
    try:
        if kind == "bytea":
            return "\\x" + unb64(value).hex()
        if kind == "timestamptz":
            return (_EPOCH + timedelta(microseconds=value)).isoformat()
    except (NotCanonical, TypeError, OverflowError):
        return value  # PostgreSQL will say what is wrong with it
    return value
