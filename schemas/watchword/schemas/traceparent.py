"""`traceparent`: where something stands in a trace, as W3C Trace Context writes it.

https://www.w3.org/TR/trace-context-2/#traceparent-header. Machines send it, so it is hostile until it has been read here. What comes with it elsewhere (`tracestate`, `baggage`) is text
without a bound, and is never read.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

TRACEPARENT = "traceparent"
"""The name of the header, in HTTP (in whatever case) and on Kafka."""

CE_TRACEPARENT = "ce_traceparent"
"""The same as an attribute of CloudEvents (extension Distributed Tracing), in binary mode on Kafka."""

_FORM = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""Version 00, the only one there is. What a later one would bring is not known, and nothing is lost without it."""

_SAMPLED = 0x01
_OF_REQUESTS = b"watchword trace v1"


class TraceContext(NamedTuple):
    """One span of one trace. Neither id is 0."""

    trace_id: int
    """128 bits."""
    span_id: int
    """64 bits."""
    is_sampled: bool

    def write(self) -> str:
        """Return the value of the header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.is_sampled else '00'}"


def read_traceparent(values: Sequence[bytes | None]) -> TraceContext | None:
    """Return what the one header of that name says; None for none, for several, and for any other form."""
    if len(values) != 1 or values[0] is None:
        return None
    found = _FORM.fullmatch(values[0])
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(flags & _SAMPLED))


def traceparent_beside(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Return what is written beside a record of Kafka, as `read_traceparent` does."""
    return read_traceparent([value for name, value in headers if name == TRACEPARENT])


def trace_id_of(request_sha256: bytes) -> int:
    """Return the trace of a request: made of its bytes, so that nobody chooses it and everybody finds the same.

    It says nothing of the digest, which polls the answer.
    """
    return int.from_bytes(sha256(_OF_REQUESTS + request_sha256).digest()[:16]) or 1
