"""OpenTelemetry's SDK as we use it: what is sampled, which ids traces get, and where spans go."""

import logging
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from watchword.streams.tracing.spans import Spans, bound_of, ids_of, is_below, wanted_trace

_SCOPE = "watchword"
_LONGEST_VALUE = 256
"""Characters of an attribute. Ours are shorter; an attestor's author may write any."""


class Provider:
    """The SDK of this process; its spans go out in a thread of its own."""

    def __init__(self, provider: TracerProvider, share: float) -> None:
        """Take what is set up to sample this share."""
        self._provider = provider
        self._share = share

    def spans(self) -> Spans:
        """Return what makes spans, which from now on every library in this process sends the same way."""
        trace.set_tracer_provider(self._provider)
        return Spans(self._provider.get_tracer(_SCOPE), self._share)

    def shutdown(self) -> None:
        """Send what is left, for as long as that takes."""
        self._provider.shutdown()


def provider(
    url: str,
    *,
    headers: Mapping[str, str],
    sampled: float,
    resource: Mapping[str, str],
) -> Provider:
    """Set up the SDK; what else it and its exporter read of `OTEL_…` (certificates, time-outs, queues, resource) holds."""
    # It logs what it cannot parse, which may be a credential; and what it cannot send, which may be one too.
    logging.getLogger("opentelemetry.util.re").disabled = True
    logging.getLogger(OTLPSpanExporter.__module__).addFilter(_name_exceptions)
    made = TracerProvider(
        sampler=OursAlone(sampled),
        resource=Resource.create(dict(resource)),
        shutdown_on_exit=False,
        id_generator=KnownTraces(),
        span_limits=SpanLimits(max_span_attribute_length=_LONGEST_VALUE),
    )
    exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers) or None)
    made.add_span_processor(BatchSpanProcessor(exporter))
    return Provider(made, sampled)


def _name_exceptions(record: logging.LogRecord) -> bool:
    """Leave the class of an exception in a line, and not its message, which quotes what was wrong."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(one).__name__ if isinstance(one, Exception) else one for one in record.args
        )
    return True


def current_ids() -> dict[str, str]:
    """Return `trace_id` and `span_id` of what is being followed here; nothing if nothing is."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return ids_of(context)


class KnownTraces(IdGenerator):
    """Random ids, but for the trace of a request, which its bytes give."""

    def __init__(self) -> None:
        """Draw the others from here."""
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        """Return a random id."""
        return self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the id that is wanted, else a random one."""
        return wanted_trace.get() or self._random.generate_trace_id()


class OursAlone(Sampler):
    """A share of traces by their ids, the same in every process.

    What comes over the wire decides nothing: a flag in a header could have everything traced, or nothing. A span beneath one of
    this process follows it, and so does one that is linked to one of this process.
    """

    def __init__(self, share: float) -> None:
        """Sample this share."""
        self._bound = bound_of(share)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide about one span."""
        del name, kind, trace_state
        parent = trace.get_current_span(parent_context).get_span_context()
        ours = [link.context for link in links or () if not link.context.is_remote]
        if parent.is_valid and not parent.is_remote:
            is_sampled = parent.trace_flags.sampled
        elif ours:
            is_sampled = any(context.trace_flags.sampled for context in ours)
        else:
            is_sampled = is_below(trace_id, self._bound)
        decision = Decision.RECORD_AND_SAMPLE if is_sampled else Decision.DROP
        return SamplingResult(decision, attributes if is_sampled else None)

    def get_description(self) -> str:
        """Name it, for whoever debugs the SDK."""
        return f"OursAlone({self._bound:#x})"
