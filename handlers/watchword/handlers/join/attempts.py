"""Requests that were being judged when a worker ended: each is judged alone, and the third time not at all.

Nobody knows which of a batch ended a worker (a verifier that blocks or allocates without end, a fault in
a library's C code). So each batch is written down before it is judged, in the query that has to be made anyway;
whoever takes partitions over reads what others had begun. Such a request is judged again with nothing beside it, counted
beforehand, and one with which a worker then ended again is answered `UNAVAILABLE`.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar
from uuid import uuid4

import structlog

from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.observer import Observer
from watchword.handlers.join.ports import JoinStore, Session
from watchword.handlers.join.sessions import on_session
from watchword.handlers.rows import Digest, Mark

T = TypeVar("T")

_log = structlog.get_logger(__name__)

MOST_ATTEMPTS = 3
"""The attempt that is not made any more: once in a batch, once alone, then `UNAVAILABLE`."""

_LONGEST_NAME = 100


class Attempts:
    """What this incarnation of a worker judges, and what others may have ended with."""

    def __init__(self, store: JoinStore, worker: str, observer: Observer) -> None:
        """Know nothing of others yet. `worker` is a stable name that nobody else has."""
        self._store = store
        self._observer = observer
        self._worker = worker[:_LONGEST_NAME] or "unnamed"
        self._incarnation = uuid4()
        self._free: list[int] = []
        self._slots = 0
        self._tries: dict[Digest, int] = {}
        self._knows_others = False
        self._learning = asyncio.Lock()
        self._alone: set[Digest] = set()
        self.turns = Turns()
        """Who judges beside others, and who alone."""

    def taken_over(self) -> None:
        """Look again, before the next batch, at what others had begun: requests may come that were theirs."""
        self._knows_others = False

    @contextmanager
    def mark(self) -> Generator[Mark]:
        """Give what a batch is marked with while it is in flight."""
        if not self._free:
            heapq.heappush(self._free, self._slots)
            self._slots += 1
        slot = heapq.heappop(self._free)
        try:
            yield Mark(self._worker, slot, self._incarnation)
        finally:
            heapq.heappush(self._free, slot)

    async def split(
        self, candidates: Sequence[Candidate]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return which candidates are judged together, and which each alone."""
        if not self._knows_others:
            async with self._learning:
                if not self._knows_others:
                    await self._learn()
        if not self._tries:
            return list(candidates), []
        alone = [c for c in candidates if c.digest in self._tries]
        return [c for c in candidates if c.digest not in self._tries], alone

    async def _learn(self) -> None:
        # Before it is asked: what is taken over meanwhile makes it look once more.
        self._knows_others = True
        try:
            found = await self._on_session(lambda s: s.take_up(self._incarnation))
        except BaseException:
            self._knows_others = False
            raise
        self._tries = dict(found)
        if self._tries:
            _log.warning("requests that others had begun", count=len(self._tries))

    async def begin_alone(self, candidate: Candidate) -> bool:
        """Count an attempt at a candidate that is judged alone; False says not to make it."""
        digest = candidate.digest
        tries = self._tries.get(digest, 1) + 1
        if tries >= MOST_ATTEMPTS:
            _log.error(
                "a request that workers ended with is not judged any more",
                attestor=candidate.attestor,
                request_id=candidate.question.request_id,
            )
            return False
        await self._on_session(lambda s: s.count_try(digest, tries))
        self._tries[digest] = tries
        self._alone.add(digest)
        return True

    async def verified(self, candidates: Iterable[Candidate]) -> None:
        """Forget the attempts at candidates that are judged alone: nobody ended when they were verified."""
        if not self._alone:
            return
        for digest in [c.digest for c in candidates if c.digest in self._alone]:
            await self._on_session(partial(_clear, digest))
            self._alone.discard(digest)
            self._tries.pop(digest, None)

    async def _on_session(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await on_session(self._store, work, retried=self._observer.retried)


async def _clear(digest: Digest, session: Session) -> None:
    await session.clear(digest)


class Turns:
    """Many do something beside each other, or one alone; who waits to be alone goes first."""

    def __init__(self) -> None:
        """Let everybody in."""
        self._beside = 0
        self._waiting = 0
        self._one = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Be one of many."""
        while self._waiting:
            await self._open.wait()
        self._beside += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._beside -= 1
            if not self._beside:
                self._quiet.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Be the only one."""
        self._waiting += 1
        self._open.clear()
        try:
            async with self._one:
                await self._quiet.wait()
                yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._open.set()
