"""The jobs by which operators have a worker explain: few, short-lived, and never lost with one worker."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

import asyncpg
import pytest

from watchword.handlers.errors import BadArgument, Conflict, NotFound, Unavailable
from watchword.handlers.explain.drafts import MOST_BYTES, Draft
from watchword.handlers.operators import explanations
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.explanations import Question
from watchword.handlers.store import explain_jobs
from watchword.handlers.store.connection import Connection, Database

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a ticket")
DIGEST = "ab" * 32


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def sql(database: str) -> AsyncGenerator[Connection]:
    connection = await asyncpg.connect(database, server_settings={"search_path": "watchword"})
    yield connection
    await connection.close()


async def test_a_job_is_audited_taken_once_and_gone_when_it_was_read(
    store: Database, sql: Connection
) -> None:
    """Who asked about whom is on record; what was asked with is not kept."""
    job = await explanations.ask(store, ADA, Question(request=b"sealed", draft=Draft()))
    audit = await sql.fetchrow("SELECT who, action, target, why FROM audit_log")
    assert tuple(audit or ()) == ("ada", "request.explain", "a file", "a ticket")
    taken = await explain_jobs.take(store, "w1", hold_s=60)
    assert taken is not None
    assert (taken.id, taken.request) == (job, b"sealed")
    assert await explain_jobs.take(store, "w2", hold_s=60) is None

    await explain_jobs.answer(store, job, "w2", {"by": "another"}, "done")
    await explain_jobs.answer(store, job, "w1", {"verdict": "x"}, "done")
    left = await sql.fetchrow("SELECT request, draft FROM explain_jobs")
    assert tuple(left or ()) == (None, None)
    assert await explanations.answer_to(store, job, within_s=5) == {"verdict": "x"}
    assert await sql.fetchval("SELECT count(*) FROM explain_jobs") == 0


async def test_a_job_outlives_its_worker_but_not_three_of_them(
    store: Database, sql: Connection
) -> None:
    """A request that ends workers must not end all of them, one after the other."""
    await explanations.ask(store, ADA, Question(sha256=DIGEST))
    for worker in ("w1", "w2", "w3"):
        taken = await explain_jobs.take(store, worker, hold_s=60)
        assert taken is not None
        assert await explain_jobs.take(store, "w9", hold_s=60) is None
        await sql.execute("UPDATE explain_jobs SET taken_until = clock_timestamp()")
    assert await explain_jobs.take(store, "w4", hold_s=60) is None


async def test_jobs_are_bounded_also_when_many_ask_at_once(
    store: Database, sql: Connection
) -> None:
    """Explanations are judged beside joins; a script in a loop must not crowd them out."""

    async def ask() -> UUID | None:
        try:
            return await explanations.ask(store, ADA, Question(sha256=DIGEST))
        except Conflict:
            return None

    asked = await asyncio.gather(*[ask() for _ in range(explain_jobs.MOST_OPEN + 8)])
    assert sum(one is not None for one in asked) == explain_jobs.MOST_OPEN
    assert await sql.fetchval("SELECT count(*) FROM audit_log") == explain_jobs.MOST_OPEN
    await sql.execute("UPDATE explain_jobs SET expires_at = clock_timestamp()")
    assert await ask() is not None


async def test_who_waits_in_vain_is_told_and_leaves_nothing(
    store: Database, sql: Connection
) -> None:
    """No worker, a slow one, or one that says no: each another message, and no row for the keeper."""
    job = await explanations.ask(store, ADA, Question(sha256=DIGEST))
    with pytest.raises(Unavailable, match="no worker has taken it up"):
        await explanations.answer_to(store, job, within_s=0)
    job = await explanations.ask(store, ADA, Question(sha256=DIGEST))
    await explain_jobs.take(store, "w1", hold_s=60)
    with pytest.raises(Unavailable, match="worker w1 has not answered"):
        await explanations.answer_to(store, job, within_s=0)
    job = await explanations.ask(store, ADA, Question(sha256=DIGEST))
    await explain_jobs.take(store, "w1", hold_s=60)
    said = {"kind": "not-found", "error": "no such request"}
    await explain_jobs.answer(store, job, "w1", said, "failed")
    with pytest.raises(NotFound, match="no such request"):
        await explanations.answer_to(store, job, within_s=5)
    assert await sql.fetchval("SELECT count(*) FROM explain_jobs") == 0


async def test_a_question_that_makes_no_sense_is_no_job(store: Database, sql: Connection) -> None:
    """Said at once, and not by a worker later."""
    for question in (
        Question(),
        Question(sha256=DIGEST, request_id=DIGEST),
        Question(request=b""),
        Question(request=b"x" * (1 << 20)),
        Question(sha256=DIGEST, limit=0),
        Question(sha256=DIGEST, draft=Draft(files={"ca.pem": b"x" * MOST_BYTES})),
    ):
        with pytest.raises(BadArgument):
            await explanations.ask(store, ADA, question)
    assert await sql.fetchval("SELECT count(*) FROM explain_jobs") == 0
