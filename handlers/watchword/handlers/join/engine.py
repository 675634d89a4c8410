"""The batch engine: an attempt at a batch, and what happens when it fails.

A batch that fails is tried again whole, with jitter, for ever, on a new connection: the inbox claim
then tells whether the commit had happened. Only a statement that PostgreSQL refused for its data
(`StoreRejected`), or a bug of ours, halves the batch; the one request left is answered
`UNAVAILABLE`, without a row, so that no content can stop a partition. One that ends the process is found
by whoever comes next (`attempts`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from hashlib import blake2b

import structlog

from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.responses import Question
from watchword.handlers.errors import StoreRejected, Unavailable, place_of
from watchword.handlers.join.answering import Answering
from watchword.handlers.join.attempts import Attempts
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    Fetch,
    NotJudged,
    Refusal,
    Rejudge,
    Replay,
    Theft,
    Waits,
)
from watchword.handlers.join.deciding import MOST_TRIES
from watchword.handlers.join.dispatching import still_allowed
from watchword.handlers.join.judging import Judge
from watchword.handlers.join.lane import judge_in_lane, needs_lane
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.observer import Observer
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.ports import JoinStore, Session
from watchword.handlers.join.records import Answer, Incoming
from watchword.handlers.join.sessions import on_session, pause
from watchword.handlers.join.settlement import settle
from watchword.handlers.rows import (
    COMMANDS,
    INVALID,
    JOINED,
    AdmittedCsr,
    Look,
    Mark,
    SentCommand,
)

_log = structlog.get_logger(__name__)

_SETTLED = Admit | Again | Refusal | NotJudged | Theft | Fetch | Waits
"""Judgements that a transaction has to settle."""


class Engine:
    """Judges batches; implements `join.records.JoinService`."""

    def __init__(
        self,
        store: JoinStore,
        judge: Judge,
        outcomes: Outcomes,
        answering: Answering,
        crypto: JoinCrypto,
        observer: Observer,
        *,
        worker: str,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """`worker` is a stable name of this process; `before_commit` is a fault suite's seam."""
        self._store = store
        self._judge = judge
        self._outcomes = outcomes
        self._answering = answering
        self._crypto = crypto
        self._observer = observer
        self._before_commit = before_commit
        self._attempts = Attempts(store, worker, observer)

    def taken_over(self) -> None:
        """See `join.records.JoinService`."""
        self._attempts.taken_over()

    async def judge(self, batch: Sequence[Incoming]) -> list[Answer]:
        """See `join.records.JoinService`."""
        everyone = [Candidate(incoming) for incoming in batch]
        distinct: dict[bytes, Candidate] = {}
        for candidate in everyone:
            distinct.setdefault(candidate.digest, candidate)
        answers: dict[bytes, Answer] = {}
        together, alone = await self._attempts.split(list(distinct.values()))
        with self._attempts.mark() as mark:
            if together:
                async with self._attempts.turns.beside():
                    await self._settled(together, answers, mark)
            for candidate in alone:
                async with self._attempts.turns.alone():
                    await self._judged_alone(candidate, answers, mark)
        return [answers[candidate.digest] for candidate in everyone]

    async def quarantine(self, record: Incoming, reason: str) -> None:
        """See `join.records.JoinService`."""
        # Not by its bytes, which nobody has, but by its place: a redelivery counts once. By another
        # hash than bytes have, or somebody could send the place as a request beforehand.
        place = f"{record.topic}/{record.partition}/{record.offset}".encode()
        candidate = Candidate(Incoming(None, record.topic, record.partition, record.offset))
        candidate.digest = blake2b(place, digest_size=32).digest()
        candidate.question = Question(candidate.digest)
        candidate.problem = NotJudged(INVALID, reason)
        with self._attempts.mark() as mark:
            await self._settled([candidate], {}, mark)

    async def _judged_alone(
        self, candidate: Candidate, answers: dict[bytes, Answer], mark: Mark
    ) -> None:
        """Answer a candidate that a worker may have ended with; nothing else is judged meanwhile."""
        go_on = await self._attempts.begin_alone(candidate)
        self._observer.suspected(given_up=not go_on)
        if go_on:
            await self._settled([candidate], answers, mark)
        else:
            await self._give_up(candidate, answers)

    async def _settled(
        self, candidates: list[Candidate], answers: dict[bytes, Answer], mark: Mark
    ) -> None:
        """Answer every candidate, whatever it takes."""
        failures = 0
        while candidates:
            try:
                candidates = await self._attempt(candidates, answers, mark)
                failures = 0
            except Unavailable as error:
                failures += 1
                self._observer.retried(str(error))
                if failures == 1:
                    _log.warning(
                        "attempt failed, trying again", error=str(error), requests=len(candidates)
                    )
                await asyncio.sleep(pause(failures))
            except MemoryError:
                raise  # nothing that this process still does can be relied on
            except Exception as error:  # noqa: BLE001 - refused data, or our own bug: never an admission, never a crash loop
                _log.error(
                    "a batch failed",
                    error=str(error) if isinstance(error, StoreRejected) else type(error).__name__,
                    where=place_of(error),
                    requests=len(candidates),
                    request_id=candidates[0].question.request_id if len(candidates) == 1 else None,
                )
                if len(candidates) == 1:
                    await self._give_up(candidates[0], answers)
                    return
                self._observer.halved()
                half = len(candidates) // 2
                await self._settled(candidates[:half], answers, mark)
                await self._settled(candidates[half:], answers, mark)
                return

    async def _give_up(self, candidate: Candidate, answers: dict[bytes, Answer]) -> None:
        """Answer `UNAVAILABLE`: our own bug or impossible data; nothing is recorded."""
        now = await self._now()
        answers[candidate.digest] = self._answering.unavailable(candidate, now)
        self._observer.answered(candidate, answers[candidate.digest])

    async def _now(self) -> datetime:
        look = await on_session(
            self._store, lambda s: s.look([], []), retried=self._observer.retried
        )
        return look.now

    async def _attempt(
        self, candidates: list[Candidate], answers: dict[bytes, Answer], mark: Mark
    ) -> list[Candidate]:
        """Judge, settle and answer; return those that have to be judged again.

        Raises:
            Unavailable: nothing is known of what was committed; try again.
            StoreRejected: the transaction was rolled back.
        """
        for candidate in candidates:
            candidate.again()
        session = await self._store.session()
        broken = True
        try:
            now = await self._attempt_in(session, candidates, mark)
            broken = False
        except StoreRejected:
            broken = False
            raise
        finally:
            await self._store.release(session, broken=broken)
        await self._lanes(candidates, now)
        return await self._answer(candidates, answers, now)

    async def _attempt_in(
        self, session: Session, candidates: list[Candidate], mark: Mark
    ) -> datetime:
        # A. Read and verify
        look = await session.look(
            [c.digest for c in candidates],
            [c.csr.sha256 for c in candidates if c.csr is not None],
            mark,
        )
        await self._recall(session, candidates, look)
        loader = Loader(session)
        try:
            await self._judge.judge(
                [c for c in candidates if not needs_lane(c, self._judge)], look, loader
            )
        finally:
            await loader.close()
        await self._attempts.verified(c for c in candidates if c.judgement is not None)

        # B. Claim, decide, write
        to_settle = [c for c in candidates if isinstance(c.judgement, _SETTLED)]
        if to_settle:
            with self._settling(to_settle):
                await session.begin()
                try:
                    effects = await settle(session, to_settle, look.now, self._outcomes)
                    self._before_commit()
                except BaseException:
                    await session.rollback()
                    raise
                await session.commit()
            for candidate in candidates:
                # Nothing was written of these, so they may as well be judged by what has changed.
                csr = candidate.csr
                if isinstance(candidate.judgement, Challenged | Broken) and (
                    csr is not None and csr.sha256 in effects.by_csr
                ):
                    candidate.judgement = Rejudge()
                if isinstance(candidate.judgement, Challenged) and (
                    candidate.reads & effects.changed
                ):
                    candidate.judgement = Rejudge()
        # What another transaction had recorded meanwhile
        if recorded := [c for c in to_settle if isinstance(c.judgement, Replay)]:
            await self._recall_replays(session, recorded)
        return look.now

    async def _recall(self, session: Session, candidates: Sequence[Candidate], look: Look) -> None:
        """Set the judgement of what is recorded already: the same bytes, or an admitted CSR."""
        replays: list[Candidate] = []
        admitted: list[Candidate] = []
        for candidate in candidates:
            row = look.inbox.get(candidate.digest)
            if row is not None and (row.not_after is None or row.not_after > look.now):
                candidate.judgement = Replay(row)
                replays.append(candidate)
            elif (
                candidate.problem is None
                and candidate.csr is not None
                and candidate.csr.sha256 in look.csrs
            ):
                admitted.append(candidate)
        if replays:
            await self._recall_replays(session, replays)
        if admitted:
            known = await session.admissions([c.csr.sha256 for c in admitted if c.csr is not None])
            for candidate in admitted:
                if (
                    candidate.csr is not None
                    and (admission := known.get(candidate.csr.sha256)) is not None
                ):
                    candidate.admitted_before = admission

    async def _recall_replays(self, session: Session, candidates: Sequence[Candidate]) -> None:
        """Add the admissions that joined replays speak of, and the commands that were handed out."""
        csrs = [
            c.judgement.row.csr_sha256
            for c in candidates
            if isinstance(c.judgement, Replay) and c.judgement.row.outcome == JOINED
        ]
        known: Mapping[bytes, AdmittedCsr] = {}
        if csrs:
            known = await session.admissions([csr for csr in csrs if csr is not None])
        sent: Mapping[bytes, list[SentCommand]] = {}
        if digests := [
            c.digest
            for c in candidates
            if isinstance(c.judgement, Replay) and c.judgement.row.outcome == COMMANDS
        ]:
            sent = await session.sent_with(digests)
        for candidate in candidates:
            replay = candidate.judgement
            if isinstance(replay, Replay) and replay.row.csr_sha256 is not None:
                said = still_allowed(
                    sent.get(candidate.digest, ()), self._outcomes.registered_kinds
                )
                candidate.judgement = Replay(replay.row, known.get(replay.row.csr_sha256), said)

    async def _lanes(self, candidates: Sequence[Candidate], now: datetime) -> None:
        """Judge those whose attestor brings its own SQL, each in a transaction of its own."""
        for candidate in candidates:
            if candidate.judgement is None:
                with self._settling([candidate]):
                    await judge_in_lane(
                        candidate, self._store, self._judge, self._outcomes, now, self._in_lane
                    )

    def _settling(self, candidates: Sequence[Candidate]) -> AbstractContextManager[None]:
        tracing = self._judge.tracing
        return nullcontext() if tracing is None else tracing.settling(candidates)

    async def _in_lane(self, candidate: Candidate) -> None:
        """Do what there is to do between a lane's verification and its commit."""
        await self._attempts.verified([candidate])
        self._before_commit()

    async def _answer(
        self, candidates: Sequence[Candidate], answers: dict[bytes, Answer], now: datetime
    ) -> list[Candidate]:
        # C. Answer
        chain = await self._crypto.signer.chain()
        again: list[Candidate] = []
        for candidate in candidates:
            if isinstance(candidate.judgement, Rejudge):
                candidate.rejudged += 1
                if candidate.rejudged < MOST_TRIES:
                    again.append(candidate)
                    continue
                _log.error(
                    "reads kept changing",
                    attestor=candidate.attestor,
                    request_id=candidate.question.request_id,
                )
                candidate.judgement = Broken("reads kept changing")
            answer = self._answering.answer(candidate, chain, now)
            answers[candidate.digest] = answer
            self._observer.answered(candidate, answer)
        return again
