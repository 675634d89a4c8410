"""Events are followed out, in the trace of the request that they came of."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.support.traced import MACHINES, trace_id, traced
from watchword.handlers.store.relay import Row
from watchword.streams.relay.publisher import Outcome
from watchword.streams.tracing.relay import TracedRelay

ROW = Row(0, 1, uuid4(), "node.events", b"k", "{}", b"{}", datetime(2026, 1, 1, tzinfo=UTC))


def row(headers: object) -> Row:
    return replace(ROW, headers=json.dumps(headers))


def test_what_was_sent_is_told_and_what_is_unknown_is_told_later() -> None:
    """A wave that failed is sent again; its rows are told once."""
    process = traced()
    rows = [row({"traceparent": MACHINES.write()})] * 3
    outcome = Outcome(acknowledged={0}, rejected={1: "InvalidRecord"})
    TracedRelay(process.spans).sent(rows, outcome, since_ns=1_000)

    sent, rejected = process.ended("send node.events")
    assert {trace_id(span) for span in (sent, rejected)} == {MACHINES.trace_id}
    assert sent.parent is not None
    assert sent.parent.span_id == MACHINES.span_id
    assert sent.start_time == 1_000
    assert dict(sent.attributes or {})["messaging.message.id"] == str(ROW.event_id)
    assert not rejected.status.is_ok
    assert dict(rejected.attributes or {})["error.type"] == "InvalidRecord"


@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": "hostile"}, {"traceparent": 1}, ["traceparent"], "traceparent"]
)
def test_an_event_that_nobody_traced_has_no_span(headers: object) -> None:
    """Nor one whose headers are broken, which its publisher tells."""
    process = traced()
    TracedRelay(process.spans).sent([row(headers)], Outcome(acknowledged={0}), since_ns=1)
    TracedRelay(process.spans).sent(
        [replace(ROW, headers="traceparent {")], Outcome(acknowledged={0}), since_ns=1
    )

    assert process.names() == []
