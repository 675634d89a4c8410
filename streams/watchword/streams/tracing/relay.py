"""The spans of a relay: the sending of each event, in the trace of the request that it came of.

The context is the journal's, which only this deployment writes. An event that nobody traced has none.
"""

import json
from collections.abc import Sequence

from opentelemetry.trace import SpanKind

from watchword.handlers.store.relay import Row
from watchword.schemas.traceparent import TRACEPARENT, TraceContext, read_traceparent
from watchword.streams.relay.publisher import Outcome
from watchword.streams.tracing.spans import Spans, fail


class TracedRelay:
    """Implements `relay.tracing.RelayTracing`."""

    def __init__(self, spans: Spans) -> None:
        """Make spans with this."""
        self._spans = spans

    def sent(self, rows: Sequence[Row], outcome: Outcome, *, since_ns: int) -> None:
        """See `RelayTracing.sent`. What is neither acknowledged nor rejected is sent again, and told then."""
        for position, row in enumerate(rows):
            why = outcome.rejected.get(position)
            if why is None and position not in outcome.acknowledged:
                continue
            context = _context(row)
            if context is None:
                continue
            span = self._spans.begin(
                f"send {row.topic}",
                SpanKind.PRODUCER,
                parent=context,
                attributes={
                    "messaging.system": "kafka",
                    "messaging.operation.type": "send",
                    "messaging.operation.name": "send",
                    "messaging.destination.name": row.topic,
                    "messaging.message.id": str(row.event_id),
                    "messaging.message.body.size": len(row.value),
                },
                at_ns=since_ns,
            )
            if why is not None:
                fail(span, why)
            span.end()


def _context(row: Row) -> TraceContext | None:
    if TRACEPARENT not in row.headers:
        return None
    try:
        found = json.loads(row.headers).get(TRACEPARENT)
    except (ValueError, AttributeError):
        return None  # The publisher says so.
    return read_traceparent([found.encode()]) if isinstance(found, str) else None
