"""A collector on this machine: takes spans over OTLP/HTTP, as `watchword` sends them, and keeps them."""

import gzip
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_S = 60.0


@dataclass(frozen=True)
class Span:
    """One span as it came over the wire; ids are hex, as `traceparent` has them."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    failed: bool

    @property
    def answer(self) -> str | None:
        """What a request was answered, if this is the span of one."""
        found: str | None = self.attributes.get("watchword.answer")
        return found


@dataclass
class Collector:
    """What has come so far."""

    url: str
    spans: list[Span] = field(default_factory=list[Span])
    bodies: list[bytes] = field(default_factory=list[bytes])
    """As they came, without compression."""
    paths: set[str] = field(default_factory=set[str])
    credentials: set[str | None] = field(default_factory=set[str | None])
    resources: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Who has sent, as each call said."""

    def until(self, wanted: Callable[["Collector"], bool], what: str) -> None:
        """Return when it is so."""
        deadline = time.monotonic() + WAIT_S
        while not wanted(self):
            assert time.monotonic() < deadline, (
                f"not in {WAIT_S:.0f} s: {what}; "
                f"there is {[(s.service, s.name, s.trace_id[:6]) for s in self.spans]}"
            )
            time.sleep(0.05)

    def of(self, trace_id: str) -> list[Span]:
        """Return the spans of one trace."""
        return [span for span in self.spans if span.trace_id == trace_id]

    def named(self, name: str) -> list[Span]:
        """Return the spans of one name."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        """Take what one call brought."""
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            said = {a.key: a.value.string_value for a in resource.resource.attributes}
            self.resources.append(said)
            for scope in resource.scope_spans:
                self.spans += [_span(said["service.name"], span) for span in scope.spans]


def _span(service: str, span: Any) -> Span:  # noqa: ANN401 - protobuf
    return Span(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        failed=span.status.code == 2,
    )


@contextmanager
def collecting() -> Generator[Collector]:
    """Listen on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.paths.add(self.path)
            collector.credentials.add(self.headers["Authorization"])
            collector.take(
                gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
