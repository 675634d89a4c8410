"""Whether a process is alive and ready, and its metrics: a listener of its own, local unless configured.

It is a few lines of HTTP/1.1 on asyncio rather than a web framework: it must not touch signal
handlers, and it has to answer while the rest of the process is in trouble.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version

import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_log = structlog.get_logger(__name__)

_HEAD_LIMIT_BYTES = 8 * 1024
_PATIENCE_S = 5.0
_STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"} | {
    503: "Service Unavailable"
}

Check = Callable[[], str | None]
"""Returns None when all is well, else why not, in words without secrets."""


class Health:
    """What has to hold before this process should get work."""

    def __init__(self) -> None:
        """Start without checks."""
        self.stopping = False
        """Set from SIGTERM on: not ready, still alive."""
        self._checks: dict[str, Check] = {}

    def add_check(self, name: str, check: Check) -> None:
        """Add a check. It is called on each look at readiness and must not block."""
        self._checks[name] = check

    def problems(self) -> dict[str, str]:
        """Return the failing checks with their reasons; empty means ready."""
        found = {"stopping": "the process is stopping"} if self.stopping else {}
        for name, check in self._checks.items():
            try:
                problem = check()
            except Exception as error:  # noqa: BLE001 - a check that raises is a check that fails
                problem = f"the check failed: {type(error).__name__}"
            if problem is not None:
                found[name] = problem
        return found


class _Readiness:
    """Readiness and version as metrics, looked at whenever they are asked for."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        problems = self._health.problems()
        yield GaugeMetricFamily(
            "watchword_ready", "1 if this process is ready for work", value=float(not problems)
        )
        failing = GaugeMetricFamily(
            "watchword_failing_check", "1 for each check that fails", labels=["check"]
        )
        for name in problems:
            failing.add_metric([name], 1.0)
        yield failing
        built = GaugeMetricFamily("watchword_build_info", "Always 1", labels=["version"])
        built.add_metric([version("watchword")], 1.0)
        yield built


class HealthListener:
    """Serves `/healthz`, `/readyz` and `/metrics` on a port of its own."""

    def __init__(
        self, health: Health, host: str, port: int, *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        """Name the address; port 0 takes a free one."""
        self._health = health
        self._host = host
        self._port = port
        self._registry = registry
        self._own = CollectorRegistry()
        self._own.register(_Readiness(health))
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the one asked for before `start`."""
        return self._server.sockets[0].getsockname()[1] if self._server else self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=_HEAD_LIMIT_BYTES
        )
        _log.info("health listener started", host=self._host, port=self.port)

    async def stop(self) -> None:
        """Stop listening; a request being answered is cut off."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _respond(self, head: bytes) -> bytes:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3:  # noqa: PLR2004 - method, target, version
            return _response(400, b"")
        method, target, _ = parts
        if method not in (b"GET", b"HEAD"):
            return _response(405, b"")
        status, content_type, body = self._answer(target.split(b"?", 1)[0].decode("latin-1"))
        return _response(status, body, content_type, with_body=method == b"GET")

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        match path:
            case "/healthz":
                return 200, "application/json", b'{"alive":true}\n'
            case "/readyz":
                problems = self._health.problems()
                said = json.dumps({"ready": not problems, "problems": problems}) + "\n"
                return 503 if problems else 200, "application/json", said.encode()
            case "/metrics":
                body = generate_latest(self._own) + generate_latest(self._registry)
                return 200, CONTENT_TYPE_LATEST, body
            case _:
                return 404, "text/plain; charset=utf-8", b""


def _response(
    status: int,
    body: bytes,
    content_type: str = "text/plain; charset=utf-8",
    *,
    with_body: bool = True,
) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
