"""The store of the join core: its statements on one connection, and the connections themselves."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.join.ports import Session
from watchword.handlers.journal import Entry
from watchword.handlers.rows import (
    Bucket,
    Digest,
    InboxClaim,
    InboxRow,
    NewRequest,
    NodeRow,
    Pair,
    RefusalRow,
    RequestKey,
    RequestRow,
    TokenState,
    Writes,
)
from watchword.handlers.store import journal
from watchword.handlers.store.attempts import AttemptWrites
from watchword.handlers.store.author_sql import AuthorSql
from watchword.handlers.store.connection import Connection, Database, hang_up
from watchword.handlers.store.join_reads import columns, request_rows
from watchword.handlers.store.join_statements import JOINS, REQUESTS
from watchword.handlers.store.life_writes import LifeWrites
from watchword.handlers.store.slots import Learned, SlotLimits, Slots
from watchword.handlers.store.translate import FOREIGN

BAN_LOCK = 0x62616E73
"""The advisory lock of bans (`bans` in ASCII): shared by batches, exclusive for a ban or a revocation."""

_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock_shared({BAN_LOCK})"
"""A ban takes the same lock exclusive, so it waits for the batches that run and stops the next ones."""

_LIVE = frozenset(("adopting", "active"))


def _request_values(requests: Sequence[NewRequest]) -> list[tuple[Any, ...]]:
    return [
        (
            *r.key,
            r.id,
            r.snapshot,
            r.tenant,
            r.pool,
            r.site,
            r.role,
            r.claims,
            r.facts,
            r.request_id,
        )
        for r in requests
    ]


class JoinSession(LifeWrites, AttemptWrites, AuthorSql):
    """One connection of one attempt; implements `join.ports.Session`."""

    def __init__(self, connection: Connection, slots: Slots) -> None:
        """Take the connection; the session owns it."""
        super().__init__(connection)
        self._slots = slots
        self._learned = Learned()

    # The transaction

    async def begin(self) -> None:
        """See `join.ports.Session`."""
        self._learned = Learned()
        # One message: with batches of one, what a join costs is mostly the statements' ways there and back.
        await self._execute(_BEGIN)

    async def commit(self) -> None:
        """See `join.ports.Session`."""
        try:
            done = await self.connection.execute("COMMIT")
        except FOREIGN as error:
            raise self._translated(error) from error
        if done != "COMMIT":
            # PostgreSQL answers so to the COMMIT of a transaction that an error has ended.
            message = "the transaction was rolled back"
            raise StoreUnavailable(message)
        self._slots.remember(self._learned)

    async def rollback(self) -> None:
        """See `join.ports.Session`."""
        try:
            async with asyncio.timeout(2):
                await self.connection.execute("ROLLBACK")
        except (*FOREIGN, TimeoutError):
            self.connection.terminate()

    async def claim_inbox(self, claims: Sequence[InboxClaim], now: datetime) -> set[Digest]:
        """See `join.ports.Session`."""
        return {row[0] for row in await self._fetch(JOINS.claim_inbox, claims, now)}

    async def read_inbox(self, digests: Sequence[Digest]) -> Mapping[Digest, InboxRow]:
        """See `join.ports.Session`."""
        return {row[0]: InboxRow(*row) for row in await self._fetch(JOINS.read_inbox, digests)}

    async def lock_tokens(self, ids: Sequence[str]) -> Mapping[str, TokenState]:
        """See `join.ports.Session`."""
        rows = await self._fetch(JOINS.lock_tokens, ids)
        return {row[0]: TokenState(row[1], row[2], row[3]) for row in rows}

    async def lock_nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """See `join.ports.Session`."""
        return {row[0]: NodeRow(*row) for row in await self._fetch(JOINS.lock_nodes, ids)}

    async def claim_admissions(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """See `join.ports.Session`."""
        rows = [(*pair, node) for pair, node in wanted.items()]
        return {(row[0], row[1]) for row in await self._fetch(JOINS.claim_admissions, rows)}

    async def holders_of_admissions(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Session`."""
        rows = await self._fetch(JOINS.holders_of_admissions, *columns(list(lost), 2))
        return {(row[0], row[1]): row[2] for row in rows}

    async def claim_uses(
        self, wanted: Mapping[Pair, tuple[UUID, datetime | None]], now: datetime
    ) -> set[Pair]:
        """See `join.ports.Session`."""
        rows = [(*pair, *use) for pair, use in wanted.items()]
        return {(row[0], row[1]) for row in await self._fetch(JOINS.claim_uses, rows, now)}

    async def claim_bindings(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """See `join.ports.Session`."""
        rows = [(*pair, node) for pair, node in wanted.items()]
        return {(row[0], row[1]) for row in await self._fetch(JOINS.claim_bindings, rows)}

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """See `join.ports.Session`."""
        return {row[0] for row in await self._fetch(JOINS.banned, subjects)}

    async def give_back(
        self,
        admissions: Sequence[Pair],
        uses: Sequence[Pair],
        bindings: Sequence[Pair],
        inbox: Sequence[Digest],
    ) -> None:
        """See `join.ports.Session`."""
        if admissions:
            await self._execute(JOINS.give_back_admissions, *columns(list(admissions), 2))
        if uses:
            await self._execute(JOINS.give_back_uses, *columns(list(uses), 2))
        if bindings:
            await self._execute(JOINS.give_back_bindings, *columns(list(bindings), 2))
        if inbox:
            await self._execute(JOINS.give_back_inbox, inbox)

    async def correct(
        self,
        admissions: Mapping[Pair, UUID],
        uses: Mapping[Pair, tuple[UUID, datetime | None]],
        bindings: Mapping[Pair, UUID],
        inbox: Sequence[InboxClaim],
    ) -> None:
        """See `join.ports.Session`."""
        if admissions:
            rows: list[tuple[Any, ...]] = [(*pair, node) for pair, node in admissions.items()]
            await self._execute(JOINS.correct_admissions, *columns(rows, 3))
        if uses:
            rows = [(*pair, *use) for pair, use in uses.items()]
            await self._execute(JOINS.correct_uses, *columns(rows, 4))
        if bindings:
            rows = [(*pair, node) for pair, node in bindings.items()]
            await self._execute(JOINS.correct_bindings, *columns(rows, 3))
        if inbox:
            rows = [(c.digest, c.outcome, c.node_id, c.reason, c.not_after) for c in inbox]
            await self._execute(JOINS.correct_inbox, *columns(rows, 5))

    async def supersede(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Mapping[UUID, list[Digest]]:
        """See `join.ports.Session`."""
        found: dict[UUID, list[Digest]] = {}
        for node_id, csr in await self._fetch(JOINS.supersede, nodes, now, why):
            found.setdefault(node_id, []).append(csr)
        return found

    async def write(self, writes: Writes, now: datetime) -> None:
        """See `join.ports.Session`."""
        if writes.rekeyed:
            await self._execute(JOINS.rekey, writes.rekeyed, now)
        await self._execute(
            JOINS.write,
            list(writes.spends),
            list(writes.spends.values()),
            writes.nodes,
            writes.certificates,
            now,
        )
        if writes.subjects:
            await self._execute(JOINS.write_subjects, writes.subjects)

    async def claim_slots(self, need: Mapping[Bucket, int]) -> Mapping[Bucket, int]:
        """See `join.ports.Session`."""
        return await self._slots.claim(self.connection, need, self._learned)

    async def write_refusals(self, rows: Sequence[RefusalRow], worker: str, now: datetime) -> None:
        """See `join.ports.Session`."""
        await self._execute(JOINS.write_refusals, rows, worker, now)

    async def append(self, entries: Sequence[Entry]) -> None:
        """See `join.ports.Session`."""
        try:
            await journal.append(self.connection, entries)
        except FOREIGN as error:
            raise self._translated(error) from error

    # Joins that wait for an operator

    async def claim_requests(
        self, wanted: Sequence[NewRequest], now: datetime, expires_at: datetime
    ) -> set[RequestKey]:
        """See `join.ports.Session`."""
        rows = await self._fetch(
            REQUESTS.claim, *columns(_request_values(wanted), 12), now, expires_at
        )
        return {(row[0], row[1], row[2]) for row in rows}

    async def lock_requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """See `join.ports.Session`."""
        return request_rows(await self._fetch(REQUESTS.lock, *columns(list(keys), 3)))

    async def lock_places(self, tenants: Sequence[str]) -> None:
        """See `join.ports.Session`."""
        await self._fetch(REQUESTS.lock_places, tenants)

    async def waiting(self, tenants: Sequence[str]) -> Mapping[tuple[str, str | None], int]:
        """See `join.ports.Session`."""
        return {(row[0], row[1]): row[2] for row in await self._fetch(REQUESTS.waiting, tenants)}

    async def settle_requests(
        self,
        given_back: Sequence[RequestKey],
        renewed: Sequence[NewRequest],
        consumed: Sequence[RequestKey],
        now: datetime,
        expires_at: datetime,
    ) -> None:
        """See `join.ports.Session`."""
        if given_back:
            await self._execute(REQUESTS.give_back, *columns(list(given_back), 3))
        if renewed:
            await self._execute(
                REQUESTS.renew, *columns(_request_values(renewed), 12), now, expires_at
            )
        if consumed:
            await self._execute(REQUESTS.consume, *columns(list(consumed), 3))

    # The lane of attestors that bring their own SQL. Textual savepoints: asyncpg's nested
    # transactions would release one that an author's error has already undone.

    async def savepoint(self) -> None:
        """See `join.ports.Session`."""
        await self._execute("SAVEPOINT lane")

    async def rollback_to_savepoint(self) -> None:
        """See `join.ports.Session`."""
        await self._execute("ROLLBACK TO SAVEPOINT lane")
        self._learned = Learned()


class PostgresJoinStore:
    """Sessions on PostgreSQL; implements `join.ports.JoinStore`."""

    def __init__(self, database: Database, limits: SlotLimits) -> None:
        """Open nothing yet."""
        self._database = database
        self._slots = Slots(limits, database.connect)
        self._idle: list[JoinSession] = []
        self._lanes = asyncio.Semaphore(2)
        self._in_lane: set[int] = set()
        self._closed = False

    async def session(self) -> JoinSession:
        """Return an idle session or a new one; as many are open as batches are in flight."""
        while self._idle:
            session = self._idle.pop()
            if not session.connection.is_closed():
                return session
        return JoinSession(await self._database.connect(by_key=True), self._slots)

    async def lane(self) -> JoinSession:
        """Return a session when one of two lanes is free."""
        await self._lanes.acquire()
        try:
            session = await self.session()
        except BaseException:
            self._lanes.release()
            raise
        self._in_lane.add(id(session))
        return session

    async def release(self, session: Session, *, broken: bool) -> None:
        """Take a session of ours back; a broken one is closed and never used again."""
        if not isinstance(session, JoinSession):
            message = "a session of another store"
            raise TypeError(message)
        if id(session) in self._in_lane:
            self._in_lane.discard(id(session))
            self._lanes.release()
        connection = session.connection
        # Never back with an open transaction, whatever became of it.
        if broken or self._closed or connection.is_closed() or connection.is_in_transaction():
            session.connection.terminate()
        else:
            self._idle.append(session)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for session in idle:
            await hang_up(session.connection)
