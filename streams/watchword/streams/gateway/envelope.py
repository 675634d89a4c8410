"""Around every request: who asks, limits of the envelope, metrics, the access log, failures.

A log line has no body, no digest (it is what polls) and no text of the client's: a method that is
not ours is `other`, an address without a route too.
"""

import re
from time import perf_counter

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from watchword.streams.gateway import metrics
from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.options import Limits
from watchword.streams.gateway.problems import Problem, Rejected, problem_response
from watchword.streams.gateway.quotas import Buckets

_log = structlog.get_logger(__name__)

ADDRESS = "watchword.address"
"""Where the scope has the client's address, as limits count it."""

REQUEST_ID = "watchword.request_id"
"""Where the scope has the id of a request that a worker could judge: a UUID, so no text of the client's."""

TRACE = "watchword.trace"
"""Where the scope has what a traced request's log line is given beside: `trace_id` and `span_id`."""

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
_ORDINARY = re.compile(r"[A-Za-z0-9/{}._-]{1,64}")
_ALWAYS = ((b"x-content-type-options", b"nosniff"),)


class Envelope:
    """An ASGI application around ours."""

    def __init__(self, app: ASGIApp, proxies: Proxies, limits: Limits) -> None:
        """Wrap."""
        self._app = app
        self._proxies = proxies
        self._limits = limits
        self._arrivals = Buckets(limits.arrivals_per_address, 1.0, capacity=limits.addresses)
        self._lines = Buckets(limits.log_lines_per_second, 1.0, capacity=1)
        self._unlogged = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        started = perf_counter()
        status = 499  # the client has gone; nobody is sent this

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        try:
            self._enter(scope)
            await self._app(scope, receive, watched)
        except Rejected as rejected:
            metrics.REJECTED.labels(rejected.problem.slug).inc()
            await problem_response(rejected)(scope, receive, watched)
        except Exception as error:  # noqa: BLE001 - nothing may end the process or reach the client
            _report(error)  # Starlette has answered already, and raises it again
        finally:
            self._leave(scope, status, perf_counter() - started)

    def _enter(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        client: tuple[str, int] | None = scope.get("client")
        forwarded = [v.decode("latin-1") for name, v in headers if name == b"x-forwarded-for"]
        address = self._proxies.client(None if client is None else client[0], forwarded)
        scope[ADDRESS] = address
        wait_s = self._arrivals.take(address)
        if wait_s:
            raise Rejected(Problem.TOO_MANY_REQUESTS, retry_after_s=wait_s)
        if (
            len(headers) > self._limits.headers
            or sum(len(name) + len(value) for name, value in headers) > self._limits.header_bytes
        ):
            raise Rejected(Problem.HEADERS_TOO_LARGE)

    def _leave(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        metrics.REQUESTS.labels(route, str(status)).inc()
        if self._lines.take(""):
            self._unlogged += 1
            return
        method = scope["method"]
        _log.info(
            "request",
            method=method if method in _METHODS else "other",
            route=route,
            status=status,
            milliseconds=round(seconds * 1000, 1),
            address=scope.get(ADDRESS),
            request_id=scope.get(REQUEST_ID),
            unlogged_before=self._unlogged,
            **scope.get(TRACE, {}),
        )
        self._unlogged = 0


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) and _ORDINARY.fullmatch(path) else "other"


def _report(error: Exception) -> None:
    """Log a bug by its type and its place; its message may hold what a client sent."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = None if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    _log.error("request failed", error=type(error).__name__, place=place)
