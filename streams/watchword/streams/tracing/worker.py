"""The spans of a worker: for each request, in the trace that its bytes give, and for each batch, in one of its own.

```text
trace of a request                                  trace of a batch
process join.requests  ◀── links both ways ──▶      judge batch
├── judge <attestor>                                ├── sign certificates
└── settle                                          ├── transaction
                                                    └── send join.responses
```

The span of a request is beneath the one that its gateway names beside it, if that is in the request's own trace; a machine that writes
to Kafka itself cannot name another. Whatever else stands there is linked.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

from opentelemetry.trace import Span, SpanKind

from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    Fetch,
    Judgement,
    NotJudged,
    Refusal,
    Rejudge,
    Replay,
    Theft,
    Waits,
)
from watchword.handlers.join.observer import Observer
from watchword.handlers.join.patience import Work
from watchword.handlers.join.records import Answer, Incoming
from watchword.schemas.requests import COMMAND_ATTESTOR, DEFAULT_ATTESTOR, RENEWAL_ATTESTOR
from watchword.schemas.topics import JOIN_RESPONSES
from watchword.schemas.traceparent import trace_id_of, traceparent_beside
from watchword.streams.tracing.spans import Attributes, Spans, context_of, current, ended, fail
from watchword.streams.worker.backlog import Delivery

_UNKNOWN = "unknown"
_OWN = {DEFAULT_ATTESTOR, RENEWAL_ATTESTOR, COMMAND_ATTESTOR}


class WorkerTracing:
    """Implements `worker.tracing.BatchTracing` and `join.tracing.Tracing`, and watches the signer and the answers."""

    def __init__(self, spans: Spans, *, group: str, attestors: Iterable[object]) -> None:
        """Know the names that attributes may have; `group` is the worker's consumer group."""
        self._spans = spans
        self._group = group
        self._known = {str(getattr(one, "id", "")) for one in attestors} | _OWN
        self._open: dict[str, Span] = {}

    # Batches

    @contextmanager
    def batch(self, batch: Sequence[Delivery]) -> Generator[None]:
        """See `BatchTracing.batch`."""
        seen: set[bytes] = set()
        followed = [span for one in batch if (span := self._begin(one, seen)) is not None]
        if not followed:
            yield
            return
        judging = self._spans.begin(
            "judge batch",
            SpanKind.INTERNAL,
            links=followed,
            attributes={"messaging.batch.message_count": len(batch)},
        )
        for span in followed:
            span.add_link(judging.get_span_context())
        try:
            with ended(judging), current(judging):
                yield
        except BaseException as error:
            for span in followed:
                fail(span, type(error).__name__)
            raise
        finally:
            for span in followed:
                self._open.pop(context_of(span).write(), None)
                span.end()

    def _begin(self, delivery: Delivery, seen: set[bytes]) -> Span | None:
        """Return the span of one record, which knows it from now on; None if it is not sampled, or has no bytes."""
        incoming = delivery.incoming
        if incoming.value is None:
            return None
        digest = sha256(incoming.value).digest()
        trace_id = trace_id_of(digest)
        if not self._spans.samples(trace_id):
            return None
        beside = traceparent_beside(incoming.headers)
        is_ours = beside is not None and beside.trace_id == trace_id
        span = self._spans.begin(
            f"process {incoming.topic}",
            SpanKind.CONSUMER,
            parent=beside if is_ours else None,
            trace_id=trace_id,
            links=() if is_ours or beside is None else (beside,),
            attributes=self._place(incoming) | {"watchword.repeated": digest in seen},
        )
        seen.add(digest)
        traceparent = context_of(span).write()
        delivery.incoming = replace(incoming, traceparent=traceparent)
        self._open[traceparent] = span
        return span

    def _place(self, incoming: Incoming) -> dict[str, str | int | bool]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": incoming.topic,
            "messaging.destination.partition.id": str(incoming.partition),
            "messaging.kafka.offset": incoming.offset,
            "messaging.consumer.group.name": self._group,
            "messaging.message.body.size": len(incoming.value or b""),
        }

    @contextmanager
    def sending(self, records: int) -> Generator[None]:
        """See `BatchTracing.sending`."""
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": JOIN_RESPONSES,
            "messaging.batch.message_count": records,
        }
        with self._spans.within(f"send {JOIN_RESPONSES}", SpanKind.PRODUCER, attributes):
            yield

    # The core

    async def judging(self, candidate: Candidate, verifying: Work) -> Judgement:
        """See `Tracing.judging`."""
        span = self._beneath(candidate, f"judge {self._attestor(candidate)}")
        if span is None:
            return await verifying
        with ended(span), current(span):
            judgement = await verifying
            span.set_attributes(_said(judgement))
            return judgement

    @contextmanager
    def judging_together(self, candidates: Sequence[Candidate]) -> Generator[None]:
        """See `Tracing.judging_together`."""
        with self._each(candidates, "judge"):
            yield

    @contextmanager
    def settling(self, candidates: Sequence[Candidate]) -> Generator[None]:
        """See `Tracing.settling`."""
        attributes: Attributes = {
            "db.system.name": "postgresql",
            "db.operation.batch.size": len(candidates),
        }
        with (
            self._each(candidates, "settle"),
            self._spans.within("transaction", SpanKind.CLIENT, attributes),
        ):
            yield

    @contextmanager
    def _each(self, candidates: Sequence[Candidate], name: str) -> Generator[None]:
        """Follow the block once for each candidate, and say what each has come to."""
        begun = [(candidate, self._beneath(candidate, name)) for candidate in candidates]
        failed: str | None = None
        try:
            yield
        except BaseException as error:
            failed = type(error).__name__
            raise
        finally:
            for candidate, span in begun:
                if span is not None:
                    span.set_attributes(_said(candidate.judgement))
                    span.set_attribute("watchword.attestor", self._attestor(candidate))
                    if failed is not None:
                        fail(span, failed)
                    span.end()

    def _beneath(self, candidate: Candidate, name: str) -> Span | None:
        parent = self._open.get(candidate.incoming.traceparent or "")
        if parent is None:
            return None
        return self._spans.begin(name, SpanKind.INTERNAL, parent=parent)

    def _attestor(self, candidate: Candidate) -> str:
        """Return the attestor if there is one of that name: a machine may name any."""
        attestor = candidate.attestor or _UNKNOWN
        return attestor if attestor in self._known else _UNKNOWN

    # Answers, and the signer

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """Say in the span of a request what it was answered."""
        span = self._open.get(candidate.incoming.traceparent or "")
        if span is None:
            return
        attributes = _said(candidate.judgement)
        attributes["watchword.attestor"] = self._attestor(candidate)
        attributes["watchword.answer"] = answer.outcome
        if candidate.question.request_id is not None:
            attributes["watchword.request_id"] = candidate.question.request_id
        if candidate.request is not None:
            attributes["watchword.kind"] = candidate.request.kind
        span.set_attributes(attributes)
        if isinstance(candidate.judgement, Broken):
            fail(span, "unavailable")

    def observing(self, observer: Observer) -> "Observed":
        """Return an observer that tells this one as well."""
        return Observed(observer, self)

    def signing(self, signer: Signer) -> "TracedSigner":
        """Return the signer with a span for each of its calls."""
        return TracedSigner(signer, self._spans)


class Observed:
    """Counts, and says in spans what requests were answered; implements `join.observer.Observer`."""

    def __init__(self, observer: Observer, tracing: WorkerTracing) -> None:
        """Tell both."""
        self._observer = observer
        self._tracing = tracing
        self.retried = observer.retried
        self.halved = observer.halved
        self.suspected = observer.suspected

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """See `Observer.answered`."""
        self._observer.answered(candidate, answer)
        self._tracing.answered(candidate, answer)


class TracedSigner:
    """A signer whose calls are followed; implements `crypto.signer.Signer`."""

    def __init__(self, signer: Signer, spans: Spans) -> None:
        """Follow this one."""
        self._signer = signer
        self._spans = spans

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """See `Signer.issue`."""
        with self._spans.within(
            "sign certificates", SpanKind.CLIENT, {"watchword.certificates": len(orders)}
        ):
            return await self._signer.issue(orders)

    async def chain(self) -> tuple[bytes, ...]:
        """See `Signer.chain`."""
        return await self._signer.chain()


def _said(judgement: Judgement | None) -> dict[str, str | int | bool]:
    """Return what a judgement is called: words of ours, and reasons that were declared."""
    match judgement:
        case None:
            return {}
        case Admit(objection=None) | Again():
            return {"watchword.outcome": "admitted"}
        case Admit(objection=refused) | Refusal(refused) | Theft(refused=refused):
            return {"watchword.outcome": "refused", "watchword.refusal": str(refused)}
        case Fetch(stopped=refused) if refused is not None:
            return {"watchword.outcome": "refused", "watchword.refusal": str(refused)}
        case NotJudged(_, reason):
            return {"watchword.outcome": "not-judged", "watchword.refusal": f"join:{reason}"}
        case Replay(row):
            recorded = {} if row.reason is None else {"watchword.refusal": row.reason}
            return {"watchword.outcome": "repeated", **recorded}
        case Waits():
            return {"watchword.outcome": "deferred-approval"}
        case Challenged():
            return {"watchword.outcome": "deferred-challenge"}
        case Broken():
            return {"watchword.outcome": "failed"}
        case Rejudge():
            return {"watchword.outcome": "judged-again"}
        case _:
            return {"watchword.outcome": "commands"}
