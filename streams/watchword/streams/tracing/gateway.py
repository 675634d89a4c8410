"""The spans of a gateway: for each request that goes to Kafka, in the trace that its bytes give.

```text
POST /v1/joins          a root of its own, with a link to the context that the machine sent
└── send join.requests  whose context goes beside the record
```

What is turned away makes none: there is a metric and a log line for that, and junk must not cost more than it does.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind

from watchword.schemas.traceparent import TRACEPARENT, TraceContext, trace_id_of
from watchword.streams.gateway.tracing import Followed
from watchword.streams.tracing.spans import Attributes, Spans, context_of, current, ended, ids_of

_ACCEPTED = 202
_UNAVAILABLE = 503


class TracedGateway:
    """Implements `gateway.tracing.GatewayTracing`."""

    def __init__(self, spans: Spans, topic: str) -> None:
        """`topic` is where requests go."""
        self._spans = spans
        self._topic = topic

    @contextmanager
    def receiving(
        self,
        request_sha256: bytes,
        machine: TraceContext | None,
        *,
        since_ns: int,
        request_id: str | None = None,
    ) -> Generator[Followed]:
        """See `GatewayTracing.receiving`."""
        trace_id = trace_id_of(request_sha256)
        if not self._spans.samples(trace_id):
            yield Followed()
            return
        attributes: dict[str, str | int | bool] = {
            "http.request.method": "POST",
            "http.route": "/v1/joins",
            "url.path": "/v1/joins",
            "watchword.repeated": request_id is None,
        }
        if request_id is not None:
            attributes["watchword.request_id"] = request_id
        received = self._spans.begin(
            "POST /v1/joins",
            SpanKind.SERVER,
            trace_id=trace_id,
            links=() if machine is None else (machine,),
            attributes=attributes,
            at_ns=since_ns,
        )
        ids = ids_of(context_of(received))
        with ended(received), current(received):
            try:
                if request_id is None:
                    yield Followed(ids=ids)
                else:
                    sending = self._spans.begin(
                        f"send {self._topic}",
                        SpanKind.PRODUCER,
                        parent=received,
                        attributes=self._sent(),
                    )
                    with ended(sending), current(sending):
                        beside = context_of(sending).write().encode()
                        yield Followed(((TRACEPARENT, beside),), ids)
            except Exception:
                received.set_attribute("http.response.status_code", _UNAVAILABLE)
                raise
            received.set_attribute("http.response.status_code", _ACCEPTED)

    def _sent(self) -> Attributes:
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": self._topic,
        }
