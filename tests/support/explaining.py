"""Every request that a bench was asked, judged again, and compared with what is recorded of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.support.joins import ANYTHING, Bench
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.explain.explaining import Explainer
from watchword.handlers.explain.explanation import Explanation
from watchword.handlers.explain.moments import Stored
from watchword.handlers.explain.past import Tail
from watchword.handlers.join.approvals import ApprovalRules
from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.judging import JudgingOptions
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.records import Answer, Incoming
from watchword.handlers.service import TOKEN_LIMITS
from watchword.handlers.store.connection import Database
from watchword.handlers.store.explaining import looking_back
from watchword.schemas.ids import AttestorId


def explainer(crypto: JoinCrypto, attestors: Iterable[Any] = ()) -> Explainer:
    """Return who explains with the attestors and limits of `join_bench`."""
    given = list(attestors)
    limits = {AttestorId("join-token"): TOKEN_LIMITS}
    limits |= {AttestorId(a.id): getattr(a, "limits", ANYTHING) for a in given}
    if not any(a.id == "join-token" for a in given):
        given.append(JoinTokenAttestor())
    return Explainer(crypto, given, JoinPolicy(limits), JudgingOptions(), ApprovalRules())


@dataclass
class Asked:
    """Observes a bench: the distinct requests that it has answered."""

    incoming: dict[bytes, Incoming] = field(default_factory=dict[bytes, Incoming])

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """See `Observer`."""
        del answer
        self.incoming.setdefault(candidate.digest, candidate.incoming)

    def retried(self, why: str) -> None:
        """See `Observer`."""

    def halved(self) -> None:
        """See `Observer`."""

    def suspected(self, *, given_up: bool) -> None:
        """See `Observer`."""


async def explain(
    bench: Bench, made: Explainer, incoming: Incoming, *, as_of_now: bool = False
) -> Explanation:
    """Return the explanation of one request."""
    [found] = await explain_all(bench, made, [incoming], as_of_now=as_of_now)
    return found


async def explain_all(
    bench: Bench,
    made: Explainer,
    asked: Iterable[Incoming],
    *,
    as_of_now: bool = False,
    like: Sequence[Explanation] = (),
) -> list[Explanation]:
    """Return the explanations of requests, in order; at the looks of those that are given, if any are."""
    given = iter(like)
    database = Database(bench.dsn, application_name="test-explain")
    found: list[Explanation] = []
    try:
        async with looking_back(database) as reads:
            now = await reads.now()
            for incoming in asked:
                candidate = Candidate(incoming)
                digest = sha256(incoming.value or b"").digest()
                recorded = await reads.recorded(digest, candidate.question.csr_sha256)
                is_past = recorded is not None and not as_of_now
                tail = await reads.tail(recorded.at) if recorded and is_past else Tail([])
                stored = Stored(incoming, recorded)
                other = next(given, None)
                found.append(
                    await made.explain(stored, reads, tail, now, as_of_now=as_of_now)
                    if other is None
                    else await made.explain_at(other.look, stored, reads, tail)
                )
    finally:
        await database.close()
    return found


def disagreements(found: Iterable[Explanation]) -> list[str]:
    """Return what was judged otherwise than it is recorded, in words."""
    return [
        f"{one.request.get('attestor')}: {one.verdict} and not {None if one.recorded is None else one.recorded.verdict};"
        f" {one.judged['world']}"
        for one in found
        if one.agrees is False
    ]
