"""What the gateway lets somebody follow who knows what a span is."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from watchword.schemas.traceparent import TRACEPARENT, TraceContext

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A request on its way to Kafka."""

    headers: Headers = ()
    """What goes beside it."""
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its log lines are given."""


class GatewayTracing(Protocol):
    """Follows requests that are worth sending. None of it may raise."""

    def receiving(
        self,
        request_sha256: bytes,
        machine: TraceContext | None,
        *,
        since_ns: int,
        request_id: str | None = None,
    ) -> AbstractContextManager[Followed]:
        """Follow a request that came at `since_ns`, until it is in Kafka; without an id it is a copy, and is not sent.

        `machine` is what the machine says of a trace of its own: it is linked to, and never adopted.
        """
        ...


class Untraced:
    """Follows nothing, and passes on what the machine said, for whoever reads the topic to link to."""

    def receiving(
        self,
        request_sha256: bytes,
        machine: TraceContext | None,
        *,
        since_ns: int,
        request_id: str | None = None,
    ) -> AbstractContextManager[Followed]:
        """See `GatewayTracing.receiving`."""
        del request_sha256, since_ns, request_id
        if machine is None:
            return nullcontext(Followed())
        return nullcontext(Followed(((TRACEPARENT, machine.write().encode()),)))
