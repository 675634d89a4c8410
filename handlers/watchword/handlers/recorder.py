"""Writing down how a verification goes, for `watchword explain`; nobody does while machines join.

Authors of attestors import this from `watchword.handlers.attestor`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

Fact = str | int | bool | datetime | bytes | None
"""A parsed public field. Bytes are never shown as they are, but as their SHA-256."""

LateFact = Fact | Callable[[], Fact]
"""A fact, or what makes it: for those that cost something, since mostly nobody asks."""


class Recorder(Protocol):
    """Takes the steps of a verification, and what was found in each."""

    def step(self, attestor: str, number: int, what: str) -> None:
        """Note that a step begins: the one before was passed."""
        ...

    def found(self, attestor: str, facts: Mapping[str, Fact]) -> None:
        """Note public facts that the step has found."""
        ...
