"""What the core lets somebody follow who knows what a span is; nothing of it is called where nobody does."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from watchword.handlers.join.candidate import Candidate, Judgement
from watchword.handlers.join.patience import Work


class Tracing(Protocol):
    """Follows candidates, each by its `incoming.traceparent`. None of it may raise."""

    async def judging(self, candidate: Candidate, verifying: Work) -> Judgement:
        """Return what a verification comes to, or raise what it raises; whatever an author traces is beneath."""
        ...

    def judging_together(self, candidates: Sequence[Candidate]) -> AbstractContextManager[None]:
        """Follow candidates that are judged in one go: renewals, and requests for commands."""
        ...

    def settling(self, candidates: Sequence[Candidate]) -> AbstractContextManager[None]:
        """Follow the transaction that settles candidates, to its end."""
        ...
