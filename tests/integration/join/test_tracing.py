"""Requests are followed through a worker: each in the trace that its bytes give, whatever a machine says of traces."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from tests.support.attestors.scripted import Scripted
from tests.support.joins import Bench, join_bench
from tests.support.traced import MACHINES, Traced, linked, span_id, trace_id, traced
from watchword.handlers.attestor import Admission, Evidence, JoinContext
from watchword.handlers.join.observer import Unobserved
from watchword.handlers.join.records import Answer, Incoming
from watchword.schemas.traceparent import TRACEPARENT, TraceContext, trace_id_of
from watchword.streams.tracing.worker import WorkerTracing
from watchword.streams.worker.backlog import Delivery
from watchword.streams.worker.tenures import Tenures

pytestmark = pytest.mark.postgres

TENURE = Tenures().begin(TopicPartition("join.requests", 0), 0)
EVENTS = "SELECT headers FROM journal ORDER BY seq"


def worker(process: Traced, *attestors: object) -> WorkerTracing:
    """Return what follows requests, as a worker has it."""
    return WorkerTracing(process.spans, group="verifiers", attestors=[Scripted(), *attestors])


def trace_of(request: bytes) -> int:
    """Return the trace that the bytes of a request give."""
    return trace_id_of(sha256(request).digest())


def beside(context: TraceContext) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record that names a context."""
    return ((TRACEPARENT, context.write().encode()),)


async def judged(
    bench: Bench,
    tracing: WorkerTracing,
    *requests: tuple[bytes, tuple[tuple[str, bytes], ...]],
) -> Sequence[Answer]:
    """Have requests judged as one batch, as a worker does, each with the headers beside it."""
    batch = [
        Delivery(Incoming(value, "join.requests", 0, nth, None, headers), None, TENURE, 1)
        for nth, (value, headers) in enumerate(requests)
    ]
    with tracing.batch(batch):
        answers = await bench.engine.judge([one.incoming for one in batch])
        with tracing.sending(len(answers)):
            return answers


def of_trace(process: Traced, trace: int) -> dict[str, ReadableSpan]:
    """Return the spans of a trace by their names."""
    return {s.name: s for s in process.exporter.get_finished_spans() if trace_id(s) == trace}


def is_beneath(span: ReadableSpan, above: ReadableSpan) -> bool:
    """Tell whether one span is the child of the other."""
    return span.parent is not None and span.parent.span_id == span_id(above)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return what a span says."""
    return dict(span.attributes or {})


async def test_a_join_is_followed_from_its_gateway_into_the_journal(database: str) -> None:
    """One trace tells how long who took, and the event says where it came from."""
    process = traced()
    tracing = worker(process)
    async with join_bench(
        database,
        tracing=tracing,
        signer=tracing.signing,
        observer=tracing.observing(Unobserved()),
    ) as bench:
        token = await bench.token()
        request = bench.machine().request(token.payload)
        gateways = TraceContext(trace_of(request), 7, is_sampled=True)
        [answer] = await judged(bench, tracing, (request, beside(gateways)))
        [headers] = [json.loads(row["headers"]) for row in await bench.fetch(EVENTS)]

    found = of_trace(process, trace_of(request))
    one = found["process join.requests"]
    assert one.kind is SpanKind.CONSUMER
    assert one.parent is not None
    assert (one.parent.span_id, one.parent.is_remote) == (7, True)
    assert is_beneath(found["judge join-token"], one)
    assert is_beneath(found["settle"], one)
    said = attributes(one)
    assert said["watchword.outcome"] == "admitted"
    assert said["watchword.answer"] == "joined" == bench.read(answer)["outcome"]
    assert said["watchword.attestor"] == "join-token"
    assert said["watchword.request_id"] == json.loads(request)["requestId"]
    assert attributes(found["settle"])["watchword.outcome"] == "admitted"

    batch = process.one("judge batch")
    assert trace_id(batch) != trace_of(request)
    assert linked(batch) == [(trace_id(one), span_id(one))]
    assert linked(one) == [(trace_id(batch), span_id(batch))]
    for name in ("sign certificates", "transaction", "send join.responses"):
        assert is_beneath(process.one(name), batch), name

    context = TraceContext(trace_id(one), span_id(one), is_sampled=True)
    assert headers["traceparent"] == headers["ce_traceparent"] == context.write()


async def test_a_machines_own_context_is_linked_and_never_adopted(database: str) -> None:
    """Who writes to Kafka itself may write any header: it gets no span of ours into a trace of its choice."""
    process = traced()
    tracing = worker(process)
    async with join_bench(database, tracing=tracing) as bench:
        token = await bench.token(uses=3)
        requests = [bench.machine().request(token.payload) for _ in range(3)]
        others = TraceContext(trace_of(requests[0]), 9, is_sampled=True)
        await judged(
            bench,
            tracing,
            (requests[0], beside(MACHINES)),
            (requests[1], beside(others)),
            (requests[2], ((TRACEPARENT, b"hostile\xff"), ("tracestate", b"x=1"))),
        )

    assert MACHINES.trace_id not in {trace_id(s) for s in process.exporter.get_finished_spans()}
    for request, wanted in zip(requests, (MACHINES, others, None), strict=True):
        one = of_trace(process, trace_of(request))["process join.requests"]
        assert one.parent is None
        ours = [link for link in one.links if not link.context.is_remote]
        machines = [link.context.span_id for link in one.links if link.context.is_remote]
        assert len(ours) == 1
        assert machines == ([] if wanted is None else [wanted.span_id])
        assert "tracestate" not in one.to_json()


async def test_a_refusal_is_followed_and_its_reason_stays_inside(database: str) -> None:
    """An operator sees why in the trace; the machine sees no more than ever, and a collector no secret."""
    process = traced()
    tracing = worker(process)
    async with join_bench(
        database, tracing=tracing, observer=tracing.observing(Unobserved())
    ) as bench:
        token = await bench.token()
        wrong = type(token)(token.id, b"s" * 32)
        request = bench.machine().request(wrong.payload)
        [answer] = await judged(bench, tracing, (request, beside(MACHINES)))
        [headers] = [json.loads(row["headers"]) for row in await bench.fetch(EVENTS)]
        [untraced] = await bench.ask(bench.machine().request(wrong.payload))
        traced_answer = bench.read(answer)

    found = of_trace(process, trace_of(request))
    one = found["process join.requests"]
    assert attributes(one)["watchword.refusal"] == "join-token:bad-secret"
    assert attributes(found["settle"])["watchword.outcome"] == "refused"
    assert one.status.is_unset
    assert headers["traceparent"].split("-")[1] == f"{trace_of(request):032x}"
    assert traced_answer.keys() == untraced.keys()
    assert traced_answer["refused"] == untraced["refused"]
    everything = "".join(span.to_json() for span in process.exporter.get_finished_spans())
    assert token.id not in everything
    assert "ssssssss" not in everything


async def test_bytes_that_come_again_are_in_the_same_trace(database: str) -> None:
    """A resend or a redelivery tells on of the same request, and has no second event."""
    process = traced()
    tracing = worker(process)
    async with join_bench(
        database, tracing=tracing, observer=tracing.observing(Unobserved())
    ) as bench:
        token = await bench.token()
        request = bench.machine().request(token.payload)
        await judged(bench, tracing, (request, ()), (request, ()))
        await judged(bench, tracing, (request, ()))
        assert await bench.one("SELECT count(*) FROM journal") == 1

    spans = process.ended("process join.requests")
    assert {trace_id(span) for span in spans} == {trace_of(request)}
    assert [attributes(span)["watchword.repeated"] for span in spans] == [False, True, False]
    first, twin, again = (attributes(span).get("watchword.outcome") for span in spans)
    assert (first, twin, again) == ("admitted", None, "repeated")


async def test_what_is_not_sampled_leaves_nothing_anywhere(database: str) -> None:
    """Not in the journal either: a context that leads nowhere helps nobody."""
    process = traced(0.0)
    tracing = worker(process)
    async with join_bench(database, tracing=tracing, signer=tracing.signing) as bench:
        token = await bench.token()
        request = bench.machine().request(token.payload)
        [answer] = await judged(bench, tracing, (request, beside(MACHINES)))
        assert bench.read(answer)["outcome"] == "joined"
        [headers] = [json.loads(row["headers"]) for row in await bench.fetch(EVENTS)]

    assert process.names() == []
    assert not [name for name in headers if "trace" in name]


class OfAnAuthor(Scripted):
    """Traces its own work."""

    def __init__(self, process: Traced) -> None:
        """Be an attestor of that name."""
        super().__init__("of-an-author")
        self._process = process

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission:
        del evidence, context
        with self._process.spans.within("ask the asset database", SpanKind.CLIENT):
            message = "hunter2"
            raise RuntimeError(message)


async def test_what_an_author_traces_is_beneath_its_verification(database: str) -> None:
    """A slow verifier is found by its own spans; and one that breaks is told by a type, not by its message."""
    process = traced()
    author = OfAnAuthor(process)
    tracing = worker(process, author)
    async with join_bench(
        database,
        tracing=tracing,
        attestors=[author],
        observer=tracing.observing(Unobserved()),
    ) as bench:
        requests = [
            bench.machine().request(b"", attestor=name) for name in (author.id, "<script>"[1:-1])
        ]
        await judged(bench, tracing, *[(request, ()) for request in requests])

    found = of_trace(process, trace_of(requests[0]))
    judging = found["judge of-an-author"]
    assert is_beneath(found["ask the asset database"], judging)
    assert attributes(judging)["watchword.outcome"] == "failed"
    assert not found["process join.requests"].status.is_ok
    unknown = of_trace(process, trace_of(requests[1]))["process join.requests"]
    assert attributes(unknown)["watchword.attestor"] == "unknown"
    everything = "".join(span.to_json() for span in process.exporter.get_finished_spans())
    assert "hunter2" not in everything
    assert "script" not in everything
