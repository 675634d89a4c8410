"""An explanation, and what is recorded of a request: what an operator is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from watchword.handlers.explain.past import Look
from watchword.handlers.explain.steps import Step
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Candidate,
    Challenged,
    Fetch,
    NothingWaits,
    NotJudged,
    Refusal,
    Theft,
    Waits,
)
from watchword.handlers.rows import UNSUPPORTED
from watchword.schemas.ids import JOIN


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a request came to. `reason` is `<attestor>:<reason>`, None of what is neither refused nor unusable."""

    outcome: str
    """`joined`, `refused`, `deferred-approval`, `deferred-challenge`, `invalid_input`, `unsupported` or `unavailable`."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the tables have of a request that was judged."""

    verdict: Verdict
    at: datetime
    """The time that judged it."""
    node_id: UUID | None = None
    tenant: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    worker: str | None = None
    xid: int | None = None
    """Its transaction; the lower 32 bits of it if nothing else is known."""
    is_repeat: bool = False
    """Whether it was given another request's admission of the same CSR."""
    recorded_at: datetime | None = None
    """When its row was written, behind every lock; None if there is only its outcome."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request, judged again."""

    request: Mapping[str, Any]
    judged: Mapping[str, Any]
    """At which time, as the world was when, by which policy."""
    verdict: Verdict
    steps: Sequence[Step]
    recorded: Recorded | None
    look: Look
    """The moments that it was judged at; another judgement at the same ones can be compared with it."""
    notes: Sequence[str] = field(default_factory=tuple[str, ...])

    @property
    def agrees(self) -> bool | None:
        """Whether the verdict is the recorded one; None if none is recorded."""
        return None if self.recorded is None else self.recorded.verdict == self.verdict

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON's types, times and ids as they are; names in snake case."""
        recorded = self.recorded
        return {
            "request": dict(self.request),
            "judged": dict(self.judged),
            "verdict": {"outcome": self.verdict.outcome, "reason": self.verdict.reason},
            "recorded": None
            if recorded is None
            else {
                "outcome": recorded.verdict.outcome,
                "reason": recorded.verdict.reason,
                "at": recorded.at,
                "node_id": recorded.node_id,
                "tenant": recorded.tenant,
                "worker": recorded.worker,
            },
            "agrees": self.agrees,
            "steps": [
                {
                    "number": step.number,
                    "attestor": step.attestor,
                    "status": step.status,
                    "what": step.what,
                    "facts": dict(step.facts),
                }
                for step in self.steps
            ],
            "notes": list(self.notes),
        }


def verdict_of(candidate: Candidate) -> Verdict:
    """Return what a candidate's final judgement comes to, as its answer and its row would have it."""
    match candidate.judgement:
        case Admit() | Again():
            return Verdict("joined")
        case Refusal(refused) | Theft(refused=refused):
            return Verdict("refused", f"{refused.attestor}:{refused.reason}")
        case Fetch(stopped=refused) if refused is not None:
            return Verdict("refused", f"{refused.attestor}:{refused.reason}")
        case Fetch() | NothingWaits():
            return Verdict("commands")
        case Waits():
            return Verdict("deferred-approval")
        case Challenged():
            return Verdict("deferred-challenge")
        case NotJudged(outcome, reason):
            code = "unsupported" if outcome == UNSUPPORTED else "invalid_input"
            return Verdict(code, f"{JOIN}:{reason}")
        case _:
            return Verdict("unavailable")
