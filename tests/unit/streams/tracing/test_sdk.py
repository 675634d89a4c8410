"""What is sampled, and in which trace a span stands."""

import pytest
from opentelemetry.trace import SpanKind

from tests.support.traced import MACHINES, Traced, linked, span_id, trace_id, traced
from watchword.schemas.traceparent import TraceContext, trace_id_of
from watchword.streams.tracing.sdk import current_ids
from watchword.streams.tracing.spans import context_of, current, ended

KIND = SpanKind.INTERNAL


def requests(count: int) -> list[int]:
    """Return the traces of so many requests."""
    return [trace_id_of(nth.to_bytes(32, "big")) for nth in range(count)]


def sampled(process: Traced, traces: list[int]) -> set[int]:
    """Return which traces a process samples."""
    for trace in traces:
        process.spans.begin("request", KIND, trace_id=trace).end()
    return {trace_id(span) for span in process.ended("request")}


def test_every_process_samples_the_same_requests() -> None:
    """A trace without its beginning or its end is worth little, and no process can ask another."""
    traces = requests(400)
    gateway, worker = (sampled(traced(0.25), traces) for _ in range(2))

    assert gateway == worker
    assert 50 < len(gateway) < 150


@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_over_the_wire_decides_nothing(*, flag: bool) -> None:
    """Else a machine could have everything of its own traced, or hide."""
    traces = requests(200)
    process = traced(0.25)
    for trace in traces:
        above = TraceContext(trace, 1, is_sampled=flag)
        process.spans.begin("request", KIND, parent=above, links=[MACHINES]).end()

    assert {trace_id(span) for span in process.ended("request")} == sampled(traced(0.25), traces)


def test_what_is_linked_to_a_span_of_this_process_follows_it() -> None:
    """A batch is traced if one of its requests is, and not by chance."""
    process = traced(0.5)
    some = requests(64)
    yes = sampled(traced(0.5), some)
    spans = {trace: process.spans.begin("request", KIND, trace_id=trace) for trace in some}
    with_one = process.spans.begin("with one", KIND, links=spans.values())
    without = process.spans.begin("without", KIND, links=[spans[t] for t in some if t not in yes])
    beneath = process.spans.begin("beneath", KIND, parent=without)

    assert 0 < len(yes) < 64
    assert with_one.is_recording()
    assert not without.is_recording()
    assert not beneath.is_recording()


def test_a_root_is_in_the_trace_that_is_wanted_whatever_is_being_followed() -> None:
    """One request's spans must not fall into another's trace."""
    process = traced()
    wanted = trace_id_of(bytes(32))
    other = process.spans.begin("other", KIND)
    with ended(other), current(other):
        process.spans.begin("root", KIND, trace_id=wanted, links=[MACHINES]).end()
        with process.spans.within("inside", KIND):
            assert current_ids()["trace_id"] == f"{context_of(other).trace_id:032x}"

    root = process.one("root")
    assert (trace_id(root), root.parent) == (wanted, None)
    assert linked(root) == [(MACHINES.trace_id, MACHINES.span_id)]
    inside = process.one("inside")
    assert inside.parent is not None
    assert inside.parent.span_id == span_id(process.one("other"))
    assert trace_id(process.one("other")) not in (wanted, MACHINES.trace_id)
    assert current_ids() == {}
    with process.spans.within("alone", KIND) as nothing:
        assert nothing is None
    assert "alone" not in process.names()


def test_what_fails_is_named_and_not_quoted() -> None:
    """An exception's message may hold what a machine sent; a collector is somebody else's."""
    process = traced()

    def break_down() -> None:
        message = "hunter2"
        with ended(process.spans.begin("broken", KIND)):
            raise ValueError(message)

    with pytest.raises(ValueError, match="hunter2"):
        break_down()

    broken = process.one("broken")
    assert not broken.status.is_ok
    assert broken.attributes == {"error.type": "ValueError"}
    assert "hunter2" not in broken.to_json()
