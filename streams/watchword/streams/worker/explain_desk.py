"""A worker's desk for explanations: takes jobs one at a time, beside its work, and writes their answers."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import structlog

from watchword.handlers.errors import (
    BadArgument,
    ConfigRefused,
    NotFound,
    OperatorError,
    StoreRejected,
    Unavailable,
    WatchwordError,
)
from watchword.handlers.explain.drafts import Draft
from watchword.handlers.explain.explaining import Explainer
from watchword.handlers.explain.explanation import Explanation, Verdict
from watchword.handlers.explain.moments import Stored
from watchword.handlers.explain.past import Tail
from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.records import Incoming
from watchword.handlers.store import explain_jobs
from watchword.handlers.store.connection import Database
from watchword.handlers.store.explain_jobs import Job
from watchword.handlers.store.explaining import PastReads, looking_back
from watchword.schemas.times import parse_rfc3339, rfc3339
from watchword.streams.worker.request_log import Kept, RequestLog

_log = structlog.get_logger(__name__)

_REST_S = 1.0
_JOB_S = 120.0
"""How long one job may take; another worker takes one over whose worker has died."""

_SNAPSHOT_S = 5.0
"""How long requests are judged in one snapshot, so that vacuum waits for nobody."""

Drafted = Callable[[Draft], AbstractContextManager[Explainer]]
"""Gives who explains by a draft; its files are gone afterwards."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a worker explains with."""

    database: Database
    worker: str
    log: RequestLog
    running: Explainer
    drafted: Drafted


@asynccontextmanager
async def attended(desk: Desk) -> AsyncGenerator[None]:
    """Answer jobs inside the block. Whatever goes wrong with one costs the worker nothing."""
    working = asyncio.create_task(_attend(desk))
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def _attend(desk: Desk) -> None:
    while True:
        try:
            job = await explain_jobs.take(desk.database, desk.worker, hold_s=_JOB_S + 10)
            if job is not None:
                await _serve(desk, job)
                continue
        except WatchwordError as error:
            # PostgreSQL is away, or its schema is another: the worker's own checks say so.
            _log.debug("no look for explanations", error=str(error))
        await asyncio.sleep(_REST_S)


async def _serve(desk: Desk, job: Job) -> None:
    _log.info("explaining", job=str(job.id))
    state = "failed"
    try:
        async with asyncio.timeout(_JOB_S):
            found = await answer(desk, job)
        state = "done"
    except TimeoutError:
        found = {
            "kind": "bad-argument",
            "error": f"it takes longer than {_JOB_S:.0f} s: ask for less",
        }
    except (NotFound, BadArgument) as error:
        found = {"kind": _kind(error), "error": str(error)}
    except ConfigRefused as error:
        found = {
            "kind": "bad-argument",
            "error": f"the draft is not usable: {'; '.join(error.problems)}",
        }
    except (Unavailable, StoreRejected, OperatorError) as error:
        found = {"kind": "unavailable", "error": str(error)}
    except Exception as error:  # noqa: BLE001 - our own bug: said, and no reason for the worker to end
        _log.error("an explanation failed", job=str(job.id), error=type(error).__name__)
        found = {
            "kind": "unavailable",
            "error": f"the worker failed over it: {type(error).__name__}",
        }
    await explain_jobs.answer(desk.database, job.id, desk.worker, found, state)


def _kind(error: WatchwordError) -> str:
    return "not-found" if isinstance(error, NotFound) else "bad-argument"


async def answer(desk: Desk, job: Job) -> dict[str, Any]:
    """Return the answer to a job.

    Raises:
        NotFound: there is no such request any more.
        BadArgument, ConfigRefused: the draft is not usable, or too much has happened since.
        Unavailable: Kafka or PostgreSQL is away.
    """
    asked = job.question
    if asked["since"] is not None:
        return await _since(desk, job)
    kept = await _found(desk, job)
    with _explainer(desk, job) as explainer:
        async with looking_back(desk.database) as reads:
            stored, as_of_now = await _stored(reads, kept), asked["now"]
            at = stored.sent_at if stored.recorded is None else stored.recorded.at
            tail = Tail([]) if as_of_now or at is None else await reads.tail(at)
            now = await reads.now()
            found = await explainer.explain(stored, reads, tail, now, as_of_now=as_of_now)
    shown: dict[str, Any] = _plain(found.as_dict() | {"draft": job.draft is not None})
    return shown


def _explainer(desk: Desk, job: Job) -> AbstractContextManager[Explainer]:
    return nullcontext(desk.running) if job.draft is None else desk.drafted(Draft.decode(job.draft))


async def _found(desk: Desk, job: Job) -> Kept | Incoming:
    """Return the request that a job names, from the job, or from Kafka."""
    asked = job.question
    if job.request is not None:
        return Incoming(job.request, "", 0, 0)
    if asked["place"] is not None:
        topic, partition, offset = asked["place"]
        kept = await desk.log.at(topic, partition, offset)
    else:
        digest = None if asked["sha256"] is None else bytes.fromhex(asked["sha256"])
        async with looking_back(desk.database) as reads:
            if digest is None:
                digest = await reads.digest_of(asked["requestId"])
            recorded = None if digest is None else await reads.recorded(digest, None)
        near = _made_at(asked["requestId"]) if recorded is None else recorded.at
        if recorded is not None and recorded.topic is not None:
            kept = await desk.log.at(recorded.topic, recorded.partition or 0, recorded.offset or 0)
        else:
            kept = await desk.log.find(digest=digest, request_id=asked["requestId"], near=near)
    if kept is None or kept.incoming.value is None:
        message = "no such request on join.requests: it is kept there for a day; give a file with its bytes"
        raise NotFound(message)
    return kept


def _made_at(request_id: str | None) -> datetime | None:
    """Return the time in a UUIDv7 (RFC 9562, 5.7): a machine's word, which says where to look first."""
    if request_id is None:
        return None
    made = UUID(request_id)
    if made.version != 7:  # noqa: PLR2004 - the version
        return None
    try:
        return datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


async def _stored(reads: PastReads, kept: Kept | Incoming) -> Stored:
    incoming = kept.incoming if isinstance(kept, Kept) else kept
    sent_at = kept.sent_at if isinstance(kept, Kept) else None
    candidate = Candidate(incoming)
    recorded = await reads.recorded(candidate.digest, candidate.question.csr_sha256)
    return Stored(incoming, recorded, sent_at)


async def _since(desk: Desk, job: Job) -> dict[str, Any]:
    """Return which requests would end otherwise: by a draft than by what is in force, or, without one, than is recorded."""
    asked = job.question
    since = parse_rfc3339(asked["since"])
    until = None if asked.get("until") is None else parse_rfc3339(asked["until"])
    kept, is_more = await _kept(desk, since, until, asked["limit"])
    compared = Compared()
    with _explainer(desk, job) as drafted:
        left = iter(kept)
        one = next(left, None)
        while one is not None:
            ends = time.monotonic() + _SNAPSHOT_S
            async with looking_back(desk.database) as reads:
                tail = await reads.tail(since)
                while one is not None and time.monotonic() < ends:
                    stored, now = await _stored(reads, one), await reads.now()
                    was = await desk.running.explain(stored, reads, tail, now, as_of_now=False)
                    would = None
                    if job.draft is not None:
                        would = await drafted.explain_at(was.look, stored, reads, tail)
                    compared.add(one, was, would)
                    one = next(left, None)
                    await asyncio.sleep(0)  # machines that join come first
    shown: dict[str, Any] = _plain(
        {
            "since": since,
            "until": until,
            "looked_at": len(kept),
            "has_more": is_more,
            "compared_with": "recorded" if job.draft is None else "in-force",
            "recorded": dict(compared.recorded),
            "changed": compared.changed,
        }
    )
    return shown


async def _kept(
    desk: Desk, since: datetime, until: datetime | None, limit: int
) -> tuple[list[Kept], bool]:
    """Return the requests of a time, each once, and whether there are more than the limit."""
    found: dict[bytes, Kept] = {}
    async with aclosing(desk.log.since(since, until=until)) as records:
        async for one in records:
            digest = Candidate(one.incoming).digest
            if digest in found:
                continue
            if len(found) == limit:
                return list(found.values()), True
            found[digest] = one
    return list(found.values()), False


@dataclass(slots=True)
class Compared:
    """What came of many requests."""

    recorded: Counter[str] = field(default_factory=Counter[str])
    """How many outcomes of each kind are recorded; requests without one are not in it."""
    changed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Those that would end otherwise."""

    def add(self, kept: Kept, was: Explanation, would: Explanation | None) -> None:
        """Compare a verdict with the recorded outcome, or with a draft's verdict."""
        recorded = None if was.recorded is None else _of(was.recorded.verdict)
        if recorded is not None:
            self.recorded[recorded] += 1
        if was.agrees is not False if would is None else was.verdict == would.verdict:
            return
        shown = was if would is None else would
        failed = [step.number for step in shown.steps if step.status == "failed"]
        place = kept.incoming
        self.changed.append(
            {
                "sent_at": kept.sent_at,
                "request_sha256": shown.request["request_sha256"],
                "request_id": shown.request.get("request_id"),
                "attestor": shown.request.get("attestor"),
                "place": f"{place.topic}:{place.partition}:{place.offset}",
                "recorded": recorded,
                "in_force": _of(was.verdict),
                "draft": None if would is None else _of(would.verdict),
                "check": failed[-1] if failed else None,
            }
        )


def _of(verdict: Verdict) -> str:
    return verdict.outcome if verdict.reason is None else f"{verdict.outcome} {verdict.reason}"


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON: times as RFC 3339, ids as text."""
    match value:
        case dict():
            items = cast("dict[str, object]", value)
            return {name: _plain(inner) for name, inner in items.items()}
        case list() | tuple():
            return [_plain(inner) for inner in cast("list[object]", value)]
        case datetime():
            return rfc3339(value)
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
