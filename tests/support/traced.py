"""OpenTelemetry's SDK as a process sets it up, with an exporter that keeps what it is given."""

from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from watchword.schemas.traceparent import TraceContext
from watchword.streams.tracing.sdk import KnownTraces, OursAlone
from watchword.streams.tracing.spans import Spans

MACHINES = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, is_sampled=True)
"""A context that a machine sends."""


@dataclass
class Traced:
    """What a process traces."""

    spans: Spans
    exporter: InMemorySpanExporter

    def ended(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name that have ended, in the order of their ends."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the one span of this name."""
        [span] = self.ended(name)
        return span

    def names(self) -> list[str]:
        """Return the names of all spans that have ended."""
        return [span.name for span in self.exporter.get_finished_spans()]


def traced(share: float = 1.0) -> Traced:
    """Return the SDK, set up to trace this share of requests."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        sampler=OursAlone(share), id_generator=KnownTraces(), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traced(Spans(provider.get_tracer("watchword"), share), exporter)


def trace_id(span: ReadableSpan) -> int:
    """Return which trace a span is in."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def span_id(span: ReadableSpan) -> int:
    """Return which span it is."""
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    """Return the traces and spans that a span is linked to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]
