"""The jobs by which operators have a worker judge requests again."""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from watchword.handlers.errors import Conflict
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.explaining import SQL

MOST_OPEN = 16
"""Jobs that may wait or run at any time, in the whole deployment."""

_LOCK = 0x6578706C
"""The advisory lock of those who ask (`expl` in ASCII)."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker has taken on."""

    id: UUID
    question: dict[str, Any]
    request: bytes | None = field(repr=False, default=None)
    draft: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Answered:
    """How a job stands. `answer` is there when `state` is `done` or `failed`."""

    state: str
    answer: dict[str, Any] | None
    worker: str | None
    tries: int


async def ask(connection: Connection, job: Job, *, who: str, good_for_s: float) -> None:
    """Add a job; raises `Conflict` if too many are open."""
    await connection.execute(SQL.lock_jobs, _LOCK)
    if await connection.fetchval(SQL.open_jobs) >= MOST_OPEN:
        message = f"{MOST_OPEN} explanations are asked for already: wait until one is answered"
        raise Conflict(message)
    await connection.execute(
        SQL.ask, job.id, who, json.dumps(job.question), job.request, job.draft, good_for_s
    )


async def take(database: Database, worker: str, *, hold_s: float) -> Job | None:
    """Take the oldest job that nobody has; None if there is none."""
    async with database.transaction() as connection:
        row = await connection.fetchrow(SQL.take, worker, hold_s)
    if row is None:
        return None
    return Job(row["id"], json.loads(row["question"]), row["request"], row["draft"])


async def answer(
    database: Database, job: UUID, worker: str, found: dict[str, Any], state: str
) -> None:
    """Answer a job that the worker still has; otherwise nothing is done."""
    async with database.transaction() as connection:
        await connection.execute(SQL.answer, job, worker, state, json.dumps(found))


async def answered(database: Database, job: UUID) -> Answered | None:
    """Return how a job stands; None if it is gone."""
    async with database.transaction() as connection:
        row = await connection.fetchrow(SQL.answered, job)
    if row is None:
        return None
    found = None if row["answer"] is None else json.loads(row["answer"])
    return Answered(row["state"], found, row["worker"], row["tries"])


async def drop(database: Database, job: UUID) -> None:
    """Forget a job whose answer was read, or for which nobody waits any more."""
    async with database.transaction() as connection:
        await connection.execute(SQL.drop_job, job)
