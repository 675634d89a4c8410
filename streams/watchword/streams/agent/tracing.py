"""What of an agent is followed, and what it tells the service of a trace of its own.

There is one for the process, as there is one log: the command line installs it, and nothing is followed until then.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from watchword.schemas.traceparent import TraceContext


class AgentTracing(Protocol):
    """Follows what an agent does. None of it may raise."""

    def following(self, what: str, attestor: str | None) -> AbstractContextManager[object]:
        """Follow the block, beneath what is followed already."""
        ...

    def context(self) -> TraceContext | None:
        """Return where we stand, for the service to link to."""
        ...


class Untraced:
    """Follows nothing, and tells what whoever started the agent has told it."""

    def __init__(self, told: TraceContext | None = None) -> None:
        """Take what the process was started in, if anything."""
        self._told = told

    def following(self, what: str, attestor: str | None) -> AbstractContextManager[object]:
        """Do nothing."""
        del what, attestor
        return nullcontext()

    def context(self) -> TraceContext | None:
        """Return what was told."""
        return self._told


_tracing: AgentTracing = Untraced()


def install(tracing: AgentTracing) -> None:
    """Follow with this from now on."""
    global _tracing  # noqa: PLW0603 - one for the process
    _tracing = tracing


def following(what: str, attestor: str | None = None) -> AbstractContextManager[object]:
    """Follow the block."""
    return _tracing.following(what, attestor)


def traceparent() -> str | None:
    """Return the value of the header that goes with a request; None for none."""
    context = _tracing.context()
    return None if context is None else context.write()
