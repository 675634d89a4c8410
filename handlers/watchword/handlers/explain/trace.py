"""What attestors say of a verification while it is explained, made harmless for a terminal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Attestor,
    Challenge,
    Deferral,
    Evidence,
    Fact,
    JoinContext,
)
from watchword.handlers.definition import brings_sql
from watchword.handlers.errors import Refused
from watchword.schemas.times import rfc3339

_MOST_STEPS = 64
_MOST_FACTS = 24
_MOST_CHARACTERS = 200

Shown = str | int | bool | None
"""A fact as it is shown."""


@dataclass(slots=True)
class Said:
    """A step of an attestor's recipe, and what it found."""

    attestor: str
    number: int
    what: str
    facts: dict[str, Shown] = field(default_factory=dict[str, Shown])
    status: str = "began"
    """`passed`, `failed`, `waits`, or `began` if nobody knows how it ended."""


class Trace:
    """Implements `attestor.Recorder` for one explanation."""

    def __init__(self) -> None:
        """Have heard nothing."""
        self.steps: list[Said] = []
        self.asked: set[str] = set()
        """The attestors that were let verify."""
        self.refused_by: str | None = None
        """The attestor whose verification refused; the core refused if there is none."""

    def step(self, attestor: str, number: int, what: str) -> None:
        """See `attestor.Recorder`."""
        self._end(attestor, "passed")
        if len(self.steps) < _MOST_STEPS:
            self.steps.append(Said(attestor, number, harmless(what)))

    def found(self, attestor: str, facts: Mapping[str, Fact]) -> None:
        """See `attestor.Recorder`."""
        last = self._last(attestor)
        if last is not None:
            for name, value in facts.items():
                if len(last.facts) < _MOST_FACTS:
                    last.facts[name] = shown(value)

    def ended(self, attestor: str, found: Any) -> None:  # noqa: ANN401 - what a stranger returned
        """Note what a verification came to."""
        self._end(attestor, "waits" if isinstance(found, Challenge | Approval) else "passed")

    def refused(self, attestor: str) -> None:
        """Note that a verification refused."""
        self.refused_by = self.refused_by or attestor
        self._end(attestor, "failed")

    def _end(self, attestor: str, status: str) -> None:
        last = self._last(attestor)
        if last is not None and last.status == "began":
            last.status = status

    def _last(self, attestor: str) -> Said | None:
        return next((said for said in reversed(self.steps) if said.attestor == attestor), None)


class Traced:
    """An attestor whose verifications are written down, and which is otherwise what it was."""

    def __init__(self, attestor: Attestor, trace: Trace) -> None:
        """Take the attestor, and where to write."""
        self.id = attestor.id
        self.version = attestor.version
        self.roles = attestor.roles
        self.reasons: Any = getattr(attestor, "reasons", ())
        self.uses_tx = brings_sql(attestor)
        self._attestor = attestor
        self._trace = trace

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Let the attestor verify, and write down how it went."""
        self._trace.asked.add(self.id)
        try:
            found = await self._attestor.verify(evidence, replace(context, recorder=self._trace))
        except Refused:
            self._trace.refused(self.id)
            raise
        self._trace.ended(self.id, found)
        return found


def shown(value: object) -> Shown:
    """Return a fact as it is shown: bytes as their SHA-256, text bounded and printable."""
    match value:
        case None | bool() | int():
            return value
        case datetime():
            return rfc3339(value)
        case bytes():
            return f"sha256:{sha256(value).hexdigest()}"
        case _:
            return harmless(str(value))


def harmless(text: str) -> str:
    """Return text that moves no cursor and is not endlessly long."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if len(printable) > _MOST_CHARACTERS:
        return printable[: _MOST_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return printable
