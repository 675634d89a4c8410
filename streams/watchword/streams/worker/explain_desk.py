"""A worker's desk for explanations: takes jobs one at a time, beside its work, and writes their answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
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
from watchword.handlers.explain.explaining import Explainer, Stored
from watchword.handlers.explain.explanation import Explanation
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

_AT_ONCE = 200
"""Requests that are judged in one snapshot: seconds, so that vacuum waits for nobody."""

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
        return await _since(desk, job, parse_rfc3339(asked["since"]), asked["limit"])
    kept = await _found(desk, job)
    with _explainer(desk, job) as explainer:
        async with looking_back(desk.database) as reads:
            found = await _explained(explainer, reads, kept, as_of_now=asked["now"])
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


async def _explained(
    explainer: Explainer,
    reads: PastReads,
    kept: Kept | Incoming,
    *,
    as_of_now: bool,
    tail: Tail | None = None,
) -> Explanation:
    incoming = kept.incoming if isinstance(kept, Kept) else kept
    sent_at = kept.sent_at if isinstance(kept, Kept) else None
    candidate = Candidate(incoming)
    recorded = await reads.recorded(candidate.digest, candidate.question.csr_sha256)
    at = recorded.at if recorded is not None else sent_at
    if tail is None:
        tail = Tail([]) if as_of_now or at is None else await reads.tail(at)
    stored = Stored(incoming, recorded, sent_at)
    return await explainer.explain(stored, reads, tail, await reads.now(), as_of_now=as_of_now)


async def _since(desk: Desk, job: Job, since: datetime, limit: int) -> dict[str, Any]:
    """Return which requests since a time would end otherwise by a draft than by what is in force."""
    kept: list[Kept] = []
    is_more = False
    async with aclosing(desk.log.since(since)) as found:
        async for one in found:
            if len(kept) == limit:
                is_more = True
                break
            kept.append(one)
    changed: list[dict[str, Any]] = []
    with _explainer(desk, job) as drafted:
        for begin in range(0, len(kept), _AT_ONCE):
            async with looking_back(desk.database) as reads:
                tail = await reads.tail(since)
                changed += await _changed(
                    desk, drafted, reads, kept[begin : begin + _AT_ONCE], tail
                )
    shown: dict[str, Any] = _plain(
        {
            "since": since,
            "looked_at": len(kept),
            "has_more": is_more,
            "changed": changed,
        }
    )
    return shown


async def _changed(
    desk: Desk, drafted: Explainer, reads: PastReads, kept: Sequence[Kept], tail: Tail
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in kept:
        if one.incoming.value is None:
            continue
        was = await _explained(desk.running, reads, one, as_of_now=False, tail=tail)
        would = await _explained(drafted, reads, one, as_of_now=False, tail=tail)
        if was.verdict != would.verdict:
            recorded = None if was.recorded is None else was.recorded.verdict
            failed = [step.number for step in would.steps if step.status == "failed"]
            found.append(
                {
                    "sent_at": one.sent_at,
                    "request_sha256": would.request["request_sha256"],
                    "request_id": would.request.get("request_id"),
                    "attestor": would.request.get("attestor"),
                    "place": f"{one.incoming.topic}:{one.incoming.partition}:{one.incoming.offset}",
                    "recorded": None
                    if recorded is None
                    else _said(recorded.outcome, recorded.reason),
                    "in_force": _said(was.verdict.outcome, was.verdict.reason),
                    "draft": _said(would.verdict.outcome, would.verdict.reason),
                    "check": failed[-1] if failed else None,
                }
            )
        await asyncio.sleep(0)  # machines that join come first
    return found


def _said(outcome: str, reason: str | None) -> str:
    return outcome if reason is None else f"{outcome} {reason}"


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
