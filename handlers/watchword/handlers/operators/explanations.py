"""Having a worker judge stored requests again: workers have the keys, and what they answer is public.

Each asking is a row of the audit log and a job; neither changes anything that a verdict rests on.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from watchword.handlers.errors import BadArgument, Conflict, NotFound, Unavailable, WatchwordError
from watchword.handlers.explain.drafts import Draft
from watchword.handlers.journal import new_event_id
from watchword.handlers.operators.actor import Actor
from watchword.handlers.store import explain_jobs, operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.explain_jobs import Job
from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.times import rfc3339

MOST_REQUESTS = 2000
"""Requests that one job looks at."""

GOOD_FOR_S = 600.0
"""How long a job waits for a worker, and its answer for a reader."""

_REST_S = 0.2

_ERRORS: Final[Mapping[str, type[WatchwordError]]] = {
    "not-found": NotFound,
    "bad-argument": BadArgument,
    "conflict": Conflict,
    "unavailable": Unavailable,
}
"""What a worker may answer instead, by its name in a job."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which request is to be judged again, or since when all: exactly one of the first four."""

    sha256: str | None = None
    request_id: str | None = None
    place: tuple[str, int, int] | None = None
    """Topic, partition and offset."""
    request: bytes | None = field(default=None, repr=False)
    """The request's own bytes."""
    since: datetime | None = None
    until: datetime | None = None
    """Only what Kafka took before then; with `since`."""
    now: bool = False
    """Judged now, and not at its own time."""
    limit: int = 1000
    draft: Draft | None = None

    def check(self) -> None:
        """Raise `BadArgument` for what makes no sense."""
        named = (self.sha256, self.request_id, self.place, self.request, self.since)
        if sum(one is not None for one in named) != 1:
            message = "one request, or a time"
            raise BadArgument(message)
        if self.request is not None and not 0 < len(self.request) <= MAX_REQUEST_BYTES:
            message = f"a request has at most {MAX_REQUEST_BYTES} bytes"
            raise BadArgument(message)
        if not 0 < self.limit <= MOST_REQUESTS:
            message = f"limit: 1 to {MOST_REQUESTS}"
            raise BadArgument(message)
        if self.until is not None and (self.since is None or self.until <= self.since):
            message = "until: a time after `since`"
            raise BadArgument(message)

    def as_json(self) -> dict[str, Any]:
        """Return what stands in a job."""
        return {
            "sha256": self.sha256,
            "requestId": self.request_id,
            "place": None if self.place is None else list(self.place),
            "since": None if self.since is None else rfc3339(self.since),
            "until": None if self.until is None else rfc3339(self.until),
            "now": self.now,
            "limit": self.limit,
        }

    @property
    def target(self) -> str:
        """What the audit log names."""
        if self.place is not None:
            return ":".join(str(part) for part in self.place)
        if self.since is not None:
            until = "" if self.until is None else f" until {rfc3339(self.until)}"
            return f"since {rfc3339(self.since)}{until}"
        return self.sha256 or self.request_id or "a file"


async def ask(database: Database, actor: Actor, question: Question) -> UUID:
    """Have a worker look at it; return the job's id.

    Raises:
        BadArgument: the question makes no sense, or is too large.
        Conflict: too many are asked already.
    """
    question.check()
    draft = None if question.draft is None else question.draft.encode()
    job = Job(new_event_id(), question.as_json(), question.request, draft)
    async with database.transaction() as connection:
        await explain_jobs.ask(connection, job, who=actor.who, good_for_s=GOOD_FOR_S)
        await operators.audit(
            connection,
            at=await operators.clock(connection),
            who=actor.who,
            action="request.explain",
            target=question.target,
            why=actor.why,
            detail={"job": str(job.id), "now": question.now, "draft": draft is not None},
        )
    return job.id


async def answer_to(database: Database, job: UUID, *, within_s: float) -> dict[str, Any]:
    """Wait for a job's answer, and return it; the job is gone afterwards, whatever comes of it.

    Raises:
        BadArgument, NotFound, Unavailable: as the worker says.
        Unavailable: no worker took it up, or none came to an end.
    """
    ends = time.monotonic() + within_s
    try:
        while True:
            found = await explain_jobs.answered(database, job)
            if found is None:
                message = "the explanation was dropped before anybody read it"
                raise Unavailable(message)
            if found.state == "done" and found.answer is not None:
                return found.answer
            if found.state == "failed":
                said = found.answer or {}
                raise _ERRORS.get(said.get("kind", ""), Unavailable)(said.get("error"))
            if time.monotonic() > ends:
                message = (
                    "no worker has taken it up: is one running, of this release?"
                    if found.state == "asked"
                    else f"worker {found.worker} has not answered yet: ask for less, or wait longer with --timeout"
                )
                raise Unavailable(message)
            await asyncio.sleep(_REST_S)
    finally:
        await explain_jobs.drop(database, job)
