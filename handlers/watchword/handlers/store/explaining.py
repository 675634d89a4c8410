"""What is recorded of requests, and the journal's tail: reads of explanations, in one READ ONLY snapshot."""

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from watchword.handlers.errors import BadArgument
from watchword.handlers.explain.explanation import Recorded, Verdict
from watchword.handlers.explain.past import Mark, PastEvent, Tail
from watchword.handlers.explain.ports import SubjectOf, UseRow
from watchword.handlers.journal import SHARDS, shard_of
from watchword.handlers.rows import (
    COMMANDS,
    DEFERRED,
    INVALID,
    JOINED,
    REFUSED,
    UNSUPPORTED,
    Digest,
    GrantRow,
    Pair,
)
from watchword.handlers.store.author_sql import AuthorSql, Scratch
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.join_reads import ReadingConnection, columns
from watchword.handlers.store.join_statements import JOINS, REQUESTS
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated

MOST_EVENTS = 50_000
"""How far explanations look back, in domain events."""

_AT_ONCE = 200
_LATE = timedelta(minutes=2)
"""How much earlier than the events around it one may have begun: transactions are shorter than this."""


@dataclass(frozen=True, slots=True)
class ExplainStatements:
    """One field for each statement of `explaining.sql`."""

    now: str
    outcome: str
    refusal: str
    refusal_by_id: str
    admission: str
    tail_of_shard: str
    tail: str
    events_of: str
    grants: str
    nodes_of_subjects: str
    uses: str
    open_jobs: str
    lock_jobs: str
    ask: str
    take: str
    answer: str
    answered: str
    drop_job: str


SQL = load(ExplainStatements, "explaining.sql")

_CERTIFIED = frozenset(("node.joined", "node.renewed"))
_OF_CSRS = _CERTIFIED | {"join.waiting"}

_CODES = {
    JOINED: "joined",
    REFUSED: "refused",
    DEFERRED: "deferred-approval",
    INVALID: "invalid_input",
    UNSUPPORTED: "unsupported",
    COMMANDS: "commands",
}


class PastReads(ReadingConnection):
    """Implements `explain.ports.Archive` on one connection in one snapshot."""

    def __init__(self, connection: Connection, scratch: Scratch) -> None:
        """Take the connection, and where authors' statements go."""
        super().__init__(connection)
        self._scratch = scratch

    def scratch(self) -> AbstractAsyncContextManager[AuthorSql]:
        """See `explain.ports.Archive`."""
        return self._scratch.transaction()

    async def now(self) -> datetime:
        """Return the database's time."""
        found: datetime = (await self._fetch(SQL.now))[0][0]
        return found

    # What is recorded

    async def recorded(self, digest: Digest, csr_sha256: Digest | None) -> Recorded | None:
        """Return the final outcome that is recorded of request bytes; challenges leave none."""
        inbox = next(iter(await self._fetch(SQL.outcome, digest)), None)
        refusal = next(iter(await self._fetch(SQL.refusal, digest)), None)
        if inbox is not None and inbox["outcome"] in (JOINED, DEFERRED, COMMANDS):
            verdict = Verdict(_CODES[inbox["outcome"]])
            is_repeat = inbox["outcome"] == JOINED and not await self._fetch(
                SQL.admission, inbox["csr_sha256"], digest
            )
            return Recorded(
                verdict,
                inbox["at"],
                node_id=inbox["node_id"],
                xid=inbox["xid"],
                is_repeat=is_repeat,
            )
        if refusal is not None and (inbox is None or inbox["at"] == refusal["occurred_at"]):
            return _of_refusal(refusal, None if inbox is None else inbox["outcome"])
        if inbox is not None:
            verdict = Verdict(_CODES[inbox["outcome"]], inbox["reason"])
            return Recorded(verdict, inbox["at"], xid=inbox["xid"])
        if csr_sha256 is not None:
            for node_id, at in await self._fetch(SQL.admission, csr_sha256, digest):
                return Recorded(Verdict("joined"), at, node_id=node_id)
        return None

    async def digest_of(self, request_id: str) -> Digest | None:
        """Return the digest of a request that was refused, by its id."""
        rows = await self._fetch(SQL.refusal_by_id, request_id)
        return rows[0][0] if rows else None

    # The journal

    async def tail(self, since: datetime) -> Tail:
        """Return every domain event since a time; the connection has to be in a transaction.

        Raises:
            BadArgument: there are more than `MOST_EVENTS`.
            EventUnknown, EventBroken: one of them cannot be folded.
        """
        union = " UNION ALL ".join(SQL.tail_of_shard.format(shard=n) for n in range(SHARDS))
        pages: list[list[Any]] = []
        async with translated():
            cursor = await self.connection.cursor(SQL.tail.format(union=union))
            while rows := await cursor.fetch(_AT_ONCE):
                pages.append(rows)
                if min(row["occurred_at"] for row in rows) < since - _LATE:
                    break
                if len(pages) * _AT_ONCE > MOST_EVENTS:
                    message = (
                        f"more than {MOST_EVENTS} events have happened since: judge it with --now"
                    )
                    raise BadArgument(message)
        tail = Tail()
        while pages:
            # Machines that join come first: so many events are folded, and then somebody else has a turn.
            for row in reversed(pages.pop()):
                tail.add(_event(row))
            await asyncio.sleep(0)
        return tail

    async def events_of(self, key: str) -> Sequence[PastEvent]:
        """See `explain.ports.Archive`."""
        encoded = key.encode()
        rows = await self._fetch(SQL.events_of, shard_of(encoded), encoded)
        return [_event(row) for row in rows]

    # Rows, whatever their state

    async def all_grants(
        self, subjects: Collection[Digest], ids: Collection[UUID]
    ) -> Sequence[tuple[GrantRow, str]]:
        """See `explain.ports.Archive`."""
        rows = await self._fetch(SQL.grants, list(subjects), list(ids))
        return [(GrantRow(*row[:5]), row[5]) for row in map(tuple, rows)]

    async def nodes_of_subjects(
        self, subjects: Collection[Digest]
    ) -> Mapping[Digest, Sequence[SubjectOf]]:
        """See `explain.ports.Archive`."""
        found: dict[Digest, list[SubjectOf]] = {}
        for subject, *of in await self._fetch(SQL.nodes_of_subjects, list(subjects)):
            found.setdefault(subject, []).append(SubjectOf(*of))
        return found

    async def uses(self, pairs: Collection[Pair]) -> Mapping[Pair, UseRow]:
        """See `explain.ports.Archive`."""
        rows = await self._fetch(SQL.uses, *columns(list(pairs), 2))
        return {(row[0], row[1]): UseRow(row[2], row[3]) for row in rows}

    async def holders_of_admissions(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `explain.ports.Archive`."""
        rows = await self._fetch(JOINS.holders_of_admissions, *columns(list(lost), 2))
        return {(row[0], row[1]): row[2] for row in rows}

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """See `explain.ports.Archive`."""
        return {row[0] for row in await self._fetch(JOINS.banned, subjects)}

    async def waiting(self, tenants: Sequence[str]) -> Mapping[tuple[str, str | None], int]:
        """See `explain.ports.Archive`."""
        return {(row[0], row[1]): row[2] for row in await self._fetch(REQUESTS.waiting, tenants)}


@asynccontextmanager
async def looking_back(database: Database) -> AsyncGenerator[PastReads]:
    """Give reads in one snapshot of a READ ONLY transaction, on a connection of its own.

    Raises:
        StoreUnavailable: PostgreSQL is away.
    """
    connection = await database.connect(by_key=True)
    scratch = Scratch(database)
    try:
        async with (
            translated(),
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            # It holds no lock, so nobody waits for a verifier that takes its time.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '30s'")
            yield PastReads(connection, scratch)
    finally:
        scratch.close()
        connection.terminate()


def _of_refusal(row: Any, outcome: int | None) -> Recorded:  # noqa: ANN401 - a record
    reason = f"{row['attestor']}:{row['reason']}"
    if row["type"] == "refused":
        code = "refused"
    elif outcome is not None:
        code = _CODES[outcome]
    else:
        is_unsupported = row["reason"] in ("unknown-attestor", "unsupported-kind")
        code = _CODES[UNSUPPORTED if is_unsupported else INVALID]
    return Recorded(
        Verdict(code, reason),
        row["occurred_at"],
        tenant=row["tenant"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        worker=row["worker"],
        xid=row["xid"],
        recorded_at=row["recorded_at"],
    )


def _event(row: Any) -> PastEvent:  # noqa: ANN401 - a record
    private = json.loads(row["private"])
    said = None if row["value"] is None else json.loads(row["value"])
    part: dict[str, Any] = private.get("certificate" if row["type"] in _CERTIFIED else "row") or {}
    mark = Mark(
        seq=row["seq"],
        xid=row["xid"],
        recorded_at=row["recorded_at"],
        occurred_at=row["occurred_at"],
        type=row["type"],
        key=row["key"],
        csr_sha256=part.get("csr_sha256") if row["type"] in _OF_CSRS else None,
        place=None if said is None else (said["tenant"], said["site"]),
        was_decided=part.get("decided_at") is not None,
    )
    return PastEvent(mark, private)
