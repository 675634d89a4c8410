"""The lane of attestors that bring their own SQL (`uses_tx = True`).

Such a join has a transaction of its own on a small second pool: inbox claim, savepoint, `verify` and
settlement inside it; a refusal undoes both and then writes its row. Its statements run with the role of their
author (`catalog.author_role`), and only they: without that role none runs. This guards against mistakes,
not malice: an attestor's code can do all that a worker can.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from watchword.handlers.definition import author_role, brings_sql
from watchword.handlers.errors import StoreRejected, StoreUnavailable, Unavailable
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    NotJudged,
    Refusal,
    Rejudge,
    Replay,
    Waits,
)
from watchword.handlers.join.judging import Judge
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.ports import JoinStore, Raw, Session
from watchword.handlers.join.settlement import settle_claimed
from watchword.handlers.rows import REFUSED, InboxClaim, Look
from watchword.schemas.ids import JOIN

# What a statement may begin with. A comment is not among it, for what comes behind one is not looked at.
_ALLOWED = re.compile(
    r"[\s(]*(?:select|insert|update|delete|merge|with|values|table)\b", re.IGNORECASE
)


_ANSWER_SECONDS = 1.0
"""A statement that was cut off is cancelled at once by a PostgreSQL that is there, be it ever so slow."""


class LaneTransaction:
    """Implements `ports.Lane`: one statement a call, no transaction or role control."""

    def __init__(self, session: Raw, role: str) -> None:
        """Speak through the lane's session, with the author's role."""
        self._session = session
        self._role = role
        self._is_closed = False
        self._was_cut_off = False
        self.failed = False
        """Whether a statement went wrong, whatever the author has made of it."""
        self.away: Unavailable | None = None
        """What took the database away from the author: no fault of theirs."""

    def close(self) -> None:
        """Take no statement any more: the verifier has returned."""
        self._is_closed = True

    async def answered(self) -> None:
        """See `ports.Lane`."""
        if not self._was_cut_off:
            return
        self._was_cut_off = False
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._session.transaction_id()
        except TimeoutError:
            message = "a statement cannot even be cancelled"
            self.away = StoreUnavailable(message)
            raise self.away from None
        except (StoreRejected, Unavailable):
            # The transaction is aborted, and PostgreSQL is there to say so. If the connection is gone,
            # the next statement meets that.
            return

    async def fetch(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Return the rows."""
        rows: Sequence[Any] = await self._run(statement, arguments, rows=True)
        return rows

    async def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement."""
        return str(await self._run(statement, arguments, rows=False))

    async def _run(self, statement: str, arguments: Sequence[object], *, rows: bool) -> Any:  # noqa: ANN401 - what the statement returns
        if self._is_closed:
            message = "the verifier has returned"
            raise PermissionError(message)
        if not _is_sendable(statement):
            self.failed = True
            message = "a statement has neither NULs nor lone surrogates"
            raise ValueError(message)
        if not _ALLOWED.match(statement):
            self.failed = True
            message = (
                "only queries and changes of rows: transaction and role control are the core's"
            )
            raise PermissionError(message)
        try:
            return await self._session.raw(statement, arguments, role=self._role, rows=rows)
        except Unavailable as error:
            if not self.failed:
                self.away = error
            self.failed = True
            raise
        except BaseException as error:
            self._was_cut_off = self._was_cut_off or isinstance(error, asyncio.CancelledError)
            # PostgreSQL has aborted the transaction, also if the author gave up waiting: whatever
            # they make of it, no admission.
            self.failed = True
            raise


def _is_sendable(statement: str) -> bool:
    # The protocol would end the connection over it, and the batch would be tried again, for ever.
    try:
        return b"\0" not in statement.encode()
    except UnicodeEncodeError:
        return False


def needs_lane(candidate: Candidate, judge: Judge) -> bool:
    """Tell whether a candidate that nothing is known of yet goes through the lane."""
    if (
        candidate.judgement is not None
        or candidate.problem is not None
        or candidate.admitted_before is not None
    ):
        return False
    registered = judge.registered(candidate)
    return registered is not None and brings_sql(registered.attestor)


async def judge_in_lane(
    candidate: Candidate,
    store: JoinStore,
    judge: Judge,
    outcomes: Outcomes,
    now: datetime,
    before_commit: Callable[[Candidate], Awaitable[None]],
) -> None:
    """Judge and settle one candidate in a transaction of its own; sets its judgement.

    Raises:
        StoreUnavailable: whether it was committed is unknown; try again.
    """
    session = await store.lane()
    broken = True
    try:
        await session.begin()
        try:
            await _in_transaction(candidate, session, judge, outcomes, now)
            await before_commit(candidate)
        except BaseException:
            await session.rollback()
            raise
        await session.commit()
        if (
            isinstance(candidate.judgement, Replay)
            and candidate.judgement.row.csr_sha256 is not None
        ):
            row = candidate.judgement.row
            known = await session.admissions([row.csr_sha256] if row.csr_sha256 else [])
            candidate.judgement = Replay(row, known.get(row.csr_sha256 or b""))
        broken = False
    except StoreRejected:
        broken = False
        raise
    finally:
        await store.release(session, broken=broken)


async def _in_transaction(
    candidate: Candidate, session: Session, judge: Judge, outcomes: Outcomes, now: datetime
) -> None:
    claim = InboxClaim(candidate.digest, REFUSED, None, candidate.question.csr_sha256, None, None)
    if candidate.digest not in await session.claim_inbox([claim], now):
        rows = await session.read_inbox([candidate.digest])
        row = rows.get(candidate.digest)
        candidate.judgement = Rejudge() if row is None else Replay(row)
        return
    if candidate.csr is not None:
        # Looked at again: an earlier request of the batch may have had the same CSR.
        known = await session.admissions([candidate.csr.sha256])
        candidate.admitted_before = known.get(candidate.csr.sha256)
    loader = Loader(session)
    try:
        await session.savepoint()
        look = Look(now, {}, {})
        await verify_in(
            candidate, session, lambda tx: judge.judge([candidate], look, loader, tx=tx)
        )
        # What the settlement makes of these is known only afterwards.
        if isinstance(candidate.judgement, Admit | Waits):
            await settle_claimed(session, [candidate], {candidate.digest: claim}, now, outcomes)
        # An admission and a deferral keep the author's writes; everything else undoes them.
        if isinstance(candidate.judgement, Admit | Waits):
            return
        if not isinstance(candidate.judgement, Challenged):
            await session.rollback_to_savepoint()
        if isinstance(candidate.judgement, Refusal | NotJudged | Again):
            await settle_claimed(session, [candidate], {candidate.digest: claim}, now, outcomes)
        else:
            await session.give_back([], [], [], [candidate.digest])
    finally:
        await loader.close()


async def verify_in(
    candidate: Candidate, session: Raw, ask: Callable[[LaneTransaction], Awaitable[object]]
) -> None:
    """Let `ask` judge inside a transaction; what the author's statements broke is never an admission.

    Raises:
        StoreUnavailable, StoreRejected: a read of ours failed, or PostgreSQL stalls.
    """
    before = await session.transaction_id()
    transaction = LaneTransaction(session, author_role(candidate.attestor or JOIN))
    try:
        await ask(transaction)
    except (Unavailable, StoreRejected):
        await transaction.answered()
        # In a transaction that the author has broken every read fails: trying again helps nobody.
        if transaction.away is not None or not transaction.failed:
            raise
        candidate.judgement = Broken("its own statement failed")
    finally:
        transaction.close()
    await transaction.answered()
    if transaction.away is not None:
        raise transaction.away
    if transaction.failed:
        if not isinstance(candidate.judgement, Refusal):
            candidate.judgement = Broken("its own statement failed")
        return
    if await session.transaction_id() != before:
        candidate.judgement = Broken("it left the transaction, or speaks as somebody else")
