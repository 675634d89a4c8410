"""`traceparent` as machines send it: one form, or nothing."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.schemas.cloudevents import Attributes, headers
from watchword.schemas.traceparent import (
    TraceContext,
    read_traceparent,
    trace_id_of,
    traceparent_beside,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_the_one_form_is_read() -> None:
    found = read_traceparent([GOOD.encode()])

    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled=True)
    assert found is not None
    assert found.write() == GOOD


@pytest.mark.parametrize(
    ("flags", "is_sampled"), [("00", False), ("01", True), ("03", True), ("fe", False)]
)
def test_of_the_flags_only_one_is_kept(flags: str, *, is_sampled: bool) -> None:
    """What others will mean some day is not passed on."""
    found = read_traceparent([f"00-{TRACE}-{SPAN}-{flags}".encode()])

    assert found is not None
    assert found.is_sampled == is_sampled
    assert found.write()[-2:] in ("00", "01")


HOSTILE = {
    "nothing": b"",
    "no form at all": b"hostile",
    "upper case": GOOD.upper().encode(),
    "no trace": f"00-{'0' * 32}-{SPAN}-01".encode(),
    "no span": f"00-{TRACE}-{'0' * 16}-01".encode(),
    "the version that is none": f"ff-{TRACE}-{SPAN}-01".encode(),
    "another version": f"01-{TRACE}-{SPAN}-01".encode(),
    "more behind it": f"{GOOD}-more".encode(),
    "a line break": f"{GOOD}\n".encode(),
    "a header": f"{GOOD}\r\nx: y".encode(),
    "blanks": f" {GOOD} ".encode(),
    "a NUL": f"{GOOD}\0".encode(),
    "short": GOOD[:-1].encode(),
    "not hex": f"00-{TRACE[:-1]}g-{SPAN}-01".encode(),
    "digits of another script": GOOD.replace("4", "\N{ARABIC-INDIC DIGIT FOUR}").encode(),
    "no UTF-8": b"\xff" + GOOD[1:].encode(),
    "64 KiB": b"0" * 65536,
    "markup": b"<script>alert(1)</script>",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_other_form_is_nothing(value: bytes) -> None:
    """It goes into records, spans and a collector of somebody's."""
    assert read_traceparent([value]) is None


def test_several_are_nothing() -> None:
    """Nobody knows which of them counts, and readers would differ."""
    assert read_traceparent([GOOD.encode(), GOOD.encode()]) is None
    assert read_traceparent([]) is None
    assert read_traceparent([None]) is None
    beside = [("traceparent", GOOD.encode()), ("tracestate", b"vendor=1")]
    assert traceparent_beside(beside) == read_traceparent([GOOD.encode()])
    assert traceparent_beside([*beside, ("traceparent", None)]) is None


@given(st.binary(max_size=80))
def test_what_is_read_is_written_back_as_it_was(value: bytes) -> None:
    """But for flags that say nothing to us."""
    found = read_traceparent([value])

    assert found is None or found.write().encode()[:-2] == value[:-2]


def test_the_trace_of_a_request_is_known_by_its_bytes_and_does_not_tell_its_digest() -> None:
    """Whoever sees a trace must not be able to poll the answer; and another request is another trace."""
    digest = sha256(b"a request").digest()
    found = trace_id_of(digest)

    assert found == trace_id_of(digest)
    assert found != trace_id_of(sha256(b"another").digest())
    assert 0 < found < 1 << 128
    assert f"{found:032x}" not in digest.hex()


def test_an_event_has_its_span_as_an_attribute_and_as_tracers_look_for_it() -> None:
    """The extension Distributed Tracing in binary mode, and the plain header; neither where nobody traces."""
    attributes = Attributes("i", "t", "s", "2026-01-01T00:00:00.000Z", "u", "acme")

    found = headers(attributes._replace(traceparent=GOOD))
    assert found["ce_traceparent"] == found["traceparent"] == GOOD
    assert not [name for name in headers(attributes) if "trace" in name]
