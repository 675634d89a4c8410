"""The spans of an agent: a join, and each round of it; a renewal; a request for commands.

They are the machine's own trace. The service links to it, and its own spans are in traces of their own.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind, get_current_span

from watchword.schemas.traceparent import TraceContext
from watchword.streams.tracing.spans import Spans, context_of, current, ended


class TracedAgent:
    """Implements `agent.tracing.AgentTracing`."""

    def __init__(self, spans: Spans, told: TraceContext | None = None) -> None:
        """`told` is what the process was started in, by this very machine: what comes first is beneath it."""
        self._spans = spans
        self._told = told

    @contextmanager
    def following(self, what: str, attestor: str | None) -> Generator[None]:
        """See `AgentTracing.following`."""
        above = get_current_span()
        span = self._spans.begin(
            what,
            SpanKind.CLIENT,
            parent=above if above.get_span_context().is_valid else self._told,
            attributes={} if attestor is None else {"watchword.attestor": attestor},
        )
        with ended(span), current(span):
            yield

    def context(self) -> TraceContext | None:
        """Return the current span's, else what the process was told."""
        span = get_current_span()
        return context_of(span) if span.get_span_context().is_valid else self._told
