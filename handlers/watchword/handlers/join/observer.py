"""What the core tells whoever counts."""

from typing import Protocol

from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.records import Answer


class Observer(Protocol):
    """Counts. Labels come from closed lists only: attestor ids, outcomes, declared reasons."""

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """Note that a request got its answer."""
        ...

    def retried(self, why: str) -> None:
        """Note that an attempt failed and is tried again."""
        ...

    def halved(self) -> None:
        """Note that a batch was halved."""
        ...

    def suspected(self, *, given_up: bool) -> None:
        """Note that a request with which a worker ended is judged alone, or is given up."""
        ...


class Unobserved:
    """Counts nothing."""

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """Do nothing."""

    def retried(self, why: str) -> None:
        """Do nothing."""

    def halved(self) -> None:
        """Do nothing."""

    def suspected(self, *, given_up: bool) -> None:
        """Do nothing."""
