"""The gateway's resources under `/v1`."""

import asyncio
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from time import time_ns

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchword.handlers.errors import Unavailable
from watchword.schemas.requests import ADDRESS_HEADER
from watchword.schemas.topics import CA_NAME, CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY, crl_key
from watchword.schemas.traceparent import TRACEPARENT, TraceContext, read_traceparent
from watchword.streams.gateway import metrics
from watchword.streams.gateway.admission import admit
from watchword.streams.gateway.answers import Answer, Answers
from watchword.streams.gateway.bodies import Disconnected, held, read_body
from watchword.streams.gateway.envelope import ADDRESS, REQUEST_ID, TRACE
from watchword.streams.gateway.openapi import openapi_bytes
from watchword.streams.gateway.options import Limits, Timings
from watchword.streams.gateway.pending import Pending
from watchword.streams.gateway.problems import Problem, Rejected, problem_response
from watchword.streams.gateway.published import Published
from watchword.streams.gateway.quotas import Buckets, Shares
from watchword.streams.gateway.requests import Requests
from watchword.streams.gateway.shedding import Steps, Turns
from watchword.streams.gateway.tracing import GatewayTracing, Untraced

JOSE = "application/jose"
"""RFC 7515, 9.2.1: a JWS in compact form."""
PKIX_CRL = "application/pkix-crl"
"""RFC 2585, 4.2: one CRL, DER."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TAG = re.compile(r"[0-9a-f]{32}")
_SECONDS = re.compile(r"[0-9]{1,9}")
_NO_STORE = {"Cache-Control": "no-store"}
_GONE = Response(status_code=499, headers=_NO_STORE)
_DOCUMENT_AGE_S = 60

_SPREAD = 0.2
"""The share of a long poll by which it may end early. Polls that came together, as after an outage or a boot, would otherwise end
and come again together, every 25 seconds."""

_ENDS_PER_TURN = 32
"""Polls without an answer that end in one turn of the event loop. Who hears that there is nothing yet has time, whoever joins has not."""

_LONG_ROW_S = 2.0
"""So many are turned away that a check of what could not be sent would take the time of what could be."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the resources work with."""

    limits: Limits
    timings: Timings
    requests: Requests
    pending: Pending
    answers: Answers
    published: Published
    tracing: GatewayTracing = field(default_factory=Untraced)


class Joins:
    """`/v1/joins`: hand a request in, and ask for its answer."""

    def __init__(self, desk: Desk) -> None:
        """Start with nobody waiting."""
        limits = desk.limits
        self._desk = desk
        self._valid = Buckets(
            limits.requests_per_address, limits.requests_window_s, capacity=limits.addresses
        )
        self._bodies = Shares(
            per_address=max(limits.body_bytes_per_address, limits.request_bytes),
            total=max(limits.body_bytes, limits.request_bytes),
        )
        self._waiters = Shares(per_address=limits.waiters_per_address, total=limits.waiters)
        timings = desk.timings
        self._turns = Turns(limits.turns_per_s, most_s=timings.turn_s)
        self._ends = Steps(_ENDS_PER_TURN)

    async def submit(self, request: Request) -> Response:
        """POST: check the request, give it to Kafka, and say where its answer will be."""
        # 1. The headers say that it is JSON, and not too much of it.
        # 2. The body, bounded in bytes, time and memory.
        # 3. A copy of what is on its way or was sent a moment ago is done: same answer.
        # 4. There is room on the way to Kafka; and it is there, if many have heard that it is not.
        # 5. A worker could judge it.
        # 6. This address has not had its share. Only requests that got this far count.
        # 7. Kafka has it.
        desk = self._desk
        address: str = request.scope[ADDRESS]
        since_ns = time_ns()

        # Step 1
        _check_headers(request.headers, desk.limits.request_bytes)

        # Step 2
        with held(self._bodies, address) as holding:
            try:
                body = await read_body(
                    request.receive,
                    holding,
                    limit=desk.limits.request_bytes,
                    deadline_s=desk.timings.body_s,
                )
            except Disconnected:
                return _GONE
            digest = sha256(body).digest()

            try:
                # Step 3
                machine = _machines_trace(request)
                if await desk.pending.is_copy(digest):
                    with desk.tracing.receiving(digest, machine, since_ns=since_ns) as followed:
                        request.scope[TRACE] = followed.ids
                else:
                    await self._take_on(request, body, digest, machine, since_ns)
            except Unavailable:
                problem = Problem.UNAVAILABLE
                raise Rejected(problem, retry_after_s=self._turns.next_s()) from None
        self._turns.served()
        return self._later(location=f"/v1/joins/{digest.hex()}")

    async def _take_on(
        self,
        request: Request,
        body: bytes,
        digest: bytes,
        machine: TraceContext | None,
        since_ns: int,
    ) -> None:
        """Steps 4 to 7; raises `Rejected`, or `Unavailable` if Kafka has not got the request."""
        desk = self._desk
        address: str = request.scope[ADDRESS]

        # Step 4
        if desk.requests.problem() is not None and self._turns.row_s() > _LONG_ROW_S:
            raise Unavailable
        place = desk.requests.place()
        if place is None:
            raise Rejected(Problem.BUSY, retry_after_s=self._turns.next_s())
        with place:
            # Step 5
            with metrics.CHECK_SECONDS.time():
                admitted = admit(body)
            request.scope[REQUEST_ID] = admitted.request_id

            # Step 6
            wait_s = self._valid.take(address)
            if wait_s:
                raise Rejected(Problem.TOO_MANY_REQUESTS, retry_after_s=wait_s)

            # Step 7
            with desk.tracing.receiving(
                digest, machine, since_ns=since_ns, request_id=admitted.request_id
            ) as followed:
                request.scope[TRACE] = followed.ids
                beside = (*followed.headers, (ADDRESS_HEADER, address.encode()))
                await desk.pending.send(digest, place.send(admitted, beside))

    async def poll(self, request: Request) -> Response:
        """GET: the next answer, at once or as soon as it is there; an unknown request is pending."""
        digest, after, wait_s = self._read_poll(request)
        answers = self._desk.answers
        answer = answers.find(digest, after)
        if answer is None and wait_s > 0:
            address: str = request.scope[ADDRESS]
            over = self._waiters.take(address)
            if over is not None:
                # Soon, and no turn: its answer may be there in a moment, and to say so costs little.
                problem = Problem.TOO_MANY_WAITERS if over == "address" else Problem.BUSY
                raise Rejected(problem, retry_after_s=self._desk.timings.retry_after_s)
            metrics.WAITERS.set(self._waiters.held)
            try:
                answer = await self._wait(request, digest, after, wait_s)
            except Disconnected:
                return _GONE
            finally:
                self._waiters.give(address)
                metrics.WAITERS.set(self._waiters.held)
        if answer is None:
            return self._later()
        headers = {**_NO_STORE, "ETag": f'"{answer.tag}"'}
        return Response(answer.value, 200, headers, media_type=JOSE)

    def _read_poll(self, request: Request) -> tuple[bytes, str | None, float]:
        text: str = request.path_params["digest"]
        if _DIGEST.fullmatch(text) is None:
            raise Rejected(Problem.NOT_FOUND)
        query = request.query_params
        wait, after = query.get("wait", "0"), query.get("after")
        if _SECONDS.fullmatch(wait) is None or (after and _TAG.fullmatch(after) is None):
            raise Rejected(Problem.BAD_PARAMETER)
        if (
            "transfer-encoding" in request.headers
            or request.headers.get("content-length", "0") != "0"
        ):
            raise Rejected(Problem.MALFORMED)
        return bytes.fromhex(text), after, min(int(wait), self._desk.timings.max_wait_s)

    async def _wait(
        self, request: Request, digest: bytes, after: str | None, wait_s: float
    ) -> Answer | None:
        """Return the answer as soon as it is there; None after `wait_s` or a little less, or when the gateway stops.

        Where many end at once it takes longer, until it is their turn.
        """
        answers = self._desk.answers
        waits_s = wait_s * random.uniform(1.0 - _SPREAD, 1.0)  # noqa: S311 - so that they do not end together
        until = asyncio.get_running_loop().time() + waits_s
        gone = asyncio.create_task(_disconnected(request))
        try:
            while (answer := answers.find(digest, after)) is None and not answers.is_closed:
                left_s = until - asyncio.get_running_loop().time()
                if left_s <= 0:
                    await self._ends.step()
                    return answers.find(digest, after)
                with answers.waiting(digest) as woken:
                    await asyncio.wait(
                        (woken, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                    )
                if gone.done():
                    raise Disconnected
            return answer
        finally:
            gone.cancel()

    def _later(self, *, location: str | None = None) -> Response:
        headers = {**_NO_STORE, "Retry-After": str(self._desk.timings.retry_after_s)}
        if location is not None:
            headers["Location"] = location
        return Response(None, 202, headers)


class Documents:
    """What the deployment publishes, as it was read."""

    def __init__(self, published: Published) -> None:
        """Serve from there."""
        self._published = published

    async def keys(self, request: Request) -> Response:
        """GET the signed key set."""
        return self._document(request, KEY_SET_KEY, JOSE, Problem.NOT_YET_KNOWN)

    async def trust_bundle(self, request: Request) -> Response:
        """GET the signed trust bundle."""
        return self._document(request, TRUST_BUNDLE_KEY, JOSE, Problem.NOT_YET_KNOWN)

    async def crl(self, request: Request) -> Response:
        """GET the CRL; there may be none."""
        return self._document(request, CRL_KEY, PKIX_CRL, Problem.NOT_FOUND)

    async def crl_of(self, request: Request) -> Response:
        """GET the CRL of one CA, by its name."""
        name: str = request.path_params["ca"]
        if CA_NAME.fullmatch(name) is None:
            raise Rejected(Problem.NOT_FOUND)
        return self._document(request, crl_key(name), PKIX_CRL, Problem.NOT_FOUND)

    def _document(
        self, request: Request, key: bytes, media_type: str, missing: Problem
    ) -> Response:
        document = self._published.get(key)
        if document is None:
            retry_after_s = None if missing is Problem.NOT_FOUND else 1
            raise Rejected(missing, retry_after_s=retry_after_s)
        headers = {"Cache-Control": f"public, max-age={_DOCUMENT_AGE_S}", "ETag": document.etag}
        if document.etag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        return Response(document.value, 200, headers, media_type=media_type)


async def openapi(_: Request) -> Response:
    """GET the description of this API."""
    headers = {"Cache-Control": f"public, max-age={_DOCUMENT_AGE_S}"}
    return Response(openapi_bytes(), 200, headers, media_type="application/json")


def application(desk: Desk) -> Starlette:
    """Return the application: every route that there is, and every error as a problem."""
    joins, documents = Joins(desk), Documents(desk.published)
    routes: list[BaseRoute] = [
        Route("/v1/joins", joins.submit, methods=["POST"]),
        Route("/v1/joins/{digest}", joins.poll, methods=["GET"]),
        Route("/v1/keys", documents.keys, methods=["GET"]),
        Route("/v1/trust-bundle", documents.trust_bundle, methods=["GET"]),
        Route("/v1/crl", documents.crl, methods=["GET"]),
        Route("/v1/crl/{ca}", documents.crl_of, methods=["GET"]),
        Route("/v1/openapi.json", openapi, methods=["GET"]),
    ]
    handlers = {Rejected: reject, HTTPException: reject, Exception: reject}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


async def reject(_: Request, error: Exception) -> Response:
    """Answer what a route, or the router, raised."""
    match error:
        case Rejected():
            rejected = error
        case HTTPException(status_code=405):
            allow = (error.headers or {}).get("Allow")
            rejected = Rejected(Problem.METHOD_NOT_ALLOWED, allow=allow)
        case HTTPException():
            rejected = Rejected(Problem.NOT_FOUND)
        case _:
            rejected = Rejected(Problem.INTERNAL, retry_after_s=1)
    metrics.REJECTED.labels(rejected.problem.slug).inc()
    return problem_response(rejected)


def _check_headers(headers: Mapping[str, str], limit: int) -> None:
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" or "content-encoding" in headers:
        raise Rejected(Problem.MEDIA_TYPE)
    # The HTTP parser has refused a length that is no number, and one beside a transfer encoding.
    if int(headers.get("content-length", "0")) > limit:
        raise Rejected(Problem.TOO_LARGE)


def _machines_trace(request: Request) -> TraceContext | None:
    """Return the machine's trace context, to be linked and never adopted."""
    return read_traceparent([v.encode("latin-1") for v in request.headers.getlist(TRACEPARENT)])


async def _disconnected(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
