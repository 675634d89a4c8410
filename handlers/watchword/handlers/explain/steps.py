"""The checks of the join core, numbered as in DESIGN, section 5, and which of them a verdict is about. Pure.

The core says nothing while it judges: what it checked follows from its verdict, because the first check
that fails is the reason. `3b` and `4b` are the parts of steps 3 and 4 that only the locks can tell.
"""

from dataclasses import dataclass, field
from typing import Final

from watchword.handlers.explain.trace import Shown, Trace
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    Fetch,
    Judgement,
    NothingWaits,
    NotJudged,
    Refusal,
    Theft,
    Waits,
)
from watchword.handlers.rows import UNSUPPORTED
from watchword.schemas.ids import JOIN

JOINS: Final = (
    ("1", "the request, its CSR and key have their form, and the CSR's own key has signed it"),
    ("2", "the attestor is known, and takes the role"),
    ("3", "the CSR was not admitted before"),
    ("4", "the seal opens, and the attestor is satisfied"),
    ("5", "a key statement can be proved again at a renewal"),
    ("6", "the claims are what the token expects"),
    ("3b", "the public key is no other node's"),
    ("4b", "what is spent has uses left"),
    ("7", "nothing that was proved is banned"),
    ("8", "a machine that is known is taken back only by what may"),
    ("9", "the node is one that this evidence may have"),
    ("10", "what binds the machine is bound to no other node"),
    ("11", "the configuration lets the attestor return this"),
    ("12", "what counts once has not counted, and an operator agrees where one is asked"),
)
"""In the order in which they are judged."""

RENEWALS: Final = (
    ("1", "the request has its form, and the CSR's own key has signed it"),
    ("2", "the CSR was not admitted before"),
    ("3", "the seal opens, and the evidence has its form"),
    ("4", "the certificate was issued here"),
    ("5", "its key signed this CSR and request"),
    ("6", "the node has the role that is named"),
    ("7", "the node is adopting or active"),
    ("8", "the certificate is neither revoked nor expired"),
    ("9", "it is the node's current one"),
    ("10", "a key statement holds for the new key"),
    ("11", "the new public key is no other node's"),
    ("12", "nothing that was proved is banned"),
)

FETCHES: Final = (
    ("1", "the request has its form, and the CSR's own key has signed it"),
    ("2", "the answer can be sealed"),
    ("3", "the seal opens, and the evidence has its form"),
    ("4", "the certificate was issued here"),
    ("5", "its key signed this CSR, request and reports"),
    ("6", "the node has the role that is named"),
    ("7", "the node is adopting or active"),
    ("8", "the certificate is neither revoked nor expired"),
    ("9", "it is the node's current one, and the CSR is for its key"),
    ("10", "nothing that was proved is banned"),
)

_OF_CORE: Final = {
    "unknown-attestor": "2",
    "unsupported-kind": "2",
    "role-not-listed": "2",
    "csr-reused": "3",
    "key-in-use": "3b",
    "sealing-key": "4",
    "unseal": "4",
    "claims-malformed": "4",
    "node-key-statement": "5",
    "expect-mismatch": "6",
    "banned": "7",
    "already-enrolled": "8",
    "no-downgrade": "8",
    "not-allowed": "11",
    "too-many-waiting": "12",
}
_OF_ATTESTORS: Final = {
    "used-up": "4b",
    "revoked": "4b",
    "expired": "4b",
    "not-its-node": "9",
    "bound-elsewhere": "10",
    "replayed": "12",
    "rejected": "12",
}
"""What the core refuses with under an attestor's name."""

_OF_HOLDERS: Final = {
    "unknown-attestor": "1",
    "sealing-key": "3",
    "unseal": "3",
    "claims-malformed": "3",
    "malformed": "3",
    "unknown-certificate": "4",
    "signature": "5",
    "wrong-role": "6",
    "node-state": "7",
    "revoked": "8",
    "expired": "8",
    "superseded": "9",
}
"""The checks of whoever shows a node's certificate: the same for renewals and requests for commands."""

_OF_RENEWALS: Final = {
    "csr-reused": "2",
    **_OF_HOLDERS,
    "key-conflict": "9",
    "key-statement-unknown": "10",
    "key-in-use": "11",
    "banned": "12",
}

_OF_FETCHES: Final = {
    "reply-key": "2",
    **_OF_HOLDERS,
    "banned": "10",
}


def _checks(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    if candidate.fetches:
        return FETCHES
    return RENEWALS if candidate.renews else JOINS


def _own_reasons(candidate: Candidate) -> dict[str, str] | None:
    """Return at which check each reason stands, for what no attestor is asked about."""
    if candidate.fetches:
        return _OF_FETCHES
    return _OF_RENEWALS if candidate.renews else None


@dataclass(slots=True)
class Step:
    """One check. `status` is `passed`, `failed`, `waits`, `unknown` or `not-reached`."""

    number: str
    what: str
    status: str = "not-reached"
    facts: dict[str, Shown] = field(default_factory=dict[str, Shown])
    attestor: str | None = None


def steps_of(candidate: Candidate, trace: Trace) -> list[Step]:
    """Return every check in order, with the attestor's own beneath the fourth."""
    judgement = candidate.judgement
    listed = _checks(candidate)
    steps = [Step(number, what) for number, what in listed]
    at, status = _stands_at(candidate, judgement, trace)
    numbers = [step.number for step in steps]
    for step in steps if at is None else steps[: numbers.index(at)]:
        step.status = "passed"
    if at is not None:
        steps[numbers.index(at)].status = status
    if isinstance(judgement, Again):
        # The answer to a CSR that was admitted: nothing more is asked.
        steps[numbers.index("2" if candidate.renews else "3")].status = "passed"
    if _own_reasons(candidate) is None and trace.steps:
        after = numbers.index("4") + 1
        steps[after:after] = [
            Step(f"4.{said.number}", said.what, _known(said.status), said.facts, said.attestor)
            for said in trace.steps
        ]
    return steps


def _known(status: str) -> str:
    return "unknown" if status == "began" else status


def _stands_at(
    candidate: Candidate, judgement: Judgement | None, trace: Trace
) -> tuple[str | None, str]:
    """Return the check that decided, and how it stands; None if all were passed."""
    match judgement:
        case Fetch(stopped=refused) if refused is not None:
            return _refused_at(candidate, refused.attestor, refused.reason, trace), "failed"
        case Admit() | Fetch() | NothingWaits():
            return None, "passed"
        case Again():
            return ("2" if candidate.renews else "3"), "passed"
        case Challenged():
            return "4", "waits"
        case Waits():
            return "12", "waits"
        case Theft(refused=refused) | Refusal(refused):
            return _refused_at(candidate, refused.attestor, refused.reason, trace), "failed"
        case NotJudged(outcome, reason):
            known = _own_reasons(candidate)
            if known is None and outcome == UNSUPPORTED:
                return "2", "failed"
            return (_OF_CORE if known is None else known).get(reason, "1"), "failed"
        case Broken():
            return ("4" if _own_reasons(candidate) is None else "3"), "unknown"
        case _:
            return "1", "unknown"


def _refused_at(candidate: Candidate, attestor: str, reason: str, trace: Trace) -> str:
    if (known := _own_reasons(candidate)) is not None:
        return known.get(reason, "1")
    if trace.refused_by is not None:
        return "4"
    if attestor == JOIN:
        return _OF_CORE.get(reason, "1")
    return _OF_ATTESTORS.get(reason, "4")
