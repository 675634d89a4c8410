"""Making spans: beneath another, beneath what a header names, or at the root of a trace that is known beforehand."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
    use_span,
)

from watchword.schemas.traceparent import TraceContext

Attributes = Mapping[str, str | int | bool]
"""From closed lists, numbers, or UUIDs: no text of a machine's."""

wanted_trace: ContextVar[int | None] = ContextVar("wanted_trace", default=None)
"""The trace that the root span which is being made is to be in."""


_HALF = (1 << 64) - 1
"""Of a trace's id the lower half decides, as in OpenTelemetry's own sampler."""


def bound_of(share: float) -> int:
    """Return below what the ids of a share of traces are."""
    return round(share * (_HALF + 1))


def is_below(trace_id: int, bound: int) -> bool:
    """Tell whether a trace is of the share with this bound."""
    return trace_id & _HALF < bound


def ids_of(context: SpanContext | TraceContext) -> dict[str, str]:
    """Return `trace_id` and `span_id` as log lines have them."""
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


class Spans:
    """Makes the spans of one process."""

    def __init__(self, tracer: Tracer, share: float) -> None:
        """Make them with this, for this share of traces."""
        self._tracer = tracer
        self._bound = bound_of(share)

    def samples(self, trace_id: int) -> bool:
        """Tell whether a trace is sampled: asked first, because a span that records nothing costs half of one that does."""
        return is_below(trace_id, self._bound)

    def begin(
        self,
        name: str,
        kind: SpanKind,
        *,
        parent: Span | TraceContext | None = None,
        trace_id: int | None = None,
        links: Iterable[Span | TraceContext] = (),
        attributes: Attributes | None = None,
        at_ns: int | None = None,
    ) -> Span:
        """Return a span that has begun: beneath `parent`, else the root of a trace, which may be given."""
        token = wanted_trace.set(trace_id)
        try:
            return self._tracer.start_span(
                name,
                _beneath(parent),
                kind,
                attributes,
                [link_to(linked) for linked in links],
                at_ns,
                record_exception=False,
                set_status_on_exception=False,
            )
        finally:
            wanted_trace.reset(token)

    def within(
        self, name: str, kind: SpanKind, attributes: Attributes | None = None
    ) -> AbstractContextManager[Span | None]:
        """Follow the block, beneath what is being followed; do nothing where nothing is."""
        if not get_current_span().is_recording():
            return nullcontext()
        return self._within(name, kind, attributes)

    @contextmanager
    def _within(self, name: str, kind: SpanKind, attributes: Attributes | None) -> Generator[Span]:
        span = self._tracer.start_span(
            name, None, kind, attributes, record_exception=False, set_status_on_exception=False
        )
        with ended(span), current(span):
            yield span


@contextmanager
def ended(span: Span) -> Generator[None]:
    """End the span with the block, and say so if that failed."""
    try:
        yield
    except BaseException as error:
        fail(span, type(error).__name__)
        raise
    finally:
        span.end()


@contextmanager
def current(span: Span) -> Generator[None]:
    """Let what is traced inside the block be beneath this span."""
    with use_span(span, record_exception=False, set_status_on_exception=False):
        yield


def fail(span: Span, why: str) -> None:
    """Say that what was followed failed: by a name, since messages may quote what a machine sent."""
    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", why)


def context_of(span: Span) -> TraceContext:
    """Return where a span stands."""
    context = span.get_span_context()
    return TraceContext(context.trace_id, context.span_id, context.trace_flags.sampled)


def link_to(linked: Span | TraceContext) -> Link:
    """Return a link to a span of ours, or to what a header names."""
    return Link(_remote(linked) if isinstance(linked, TraceContext) else linked.get_span_context())


def _beneath(parent: Span | TraceContext | None) -> Context:
    """Return the context to begin a span in, whatever is being followed."""
    if parent is None:
        return Context()
    span = NonRecordingSpan(_remote(parent)) if isinstance(parent, TraceContext) else parent
    return set_span_in_context(span, Context())


def _remote(found: TraceContext) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if found.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(found.trace_id, found.span_id, is_remote=True, trace_flags=flags)
