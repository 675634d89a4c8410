"""Judging a stored request again, by the engine's own code, at each moment that its verdict may be of.

The first moment whose verdict is the recorded one is the explanation; if none is, the first is shown, and that it
differs.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from watchword.handlers.attestor import Attestor
from watchword.handlers.catalog import Catalog
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.definition import brings_sql, is_attestor
from watchword.handlers.explain.explanation import Explanation, verdict_of
from watchword.handlers.explain.facts import request_facts, tell
from watchword.handlers.explain.moments import Stored, looks
from watchword.handlers.explain.past import Look, Tail
from watchword.handlers.explain.ports import Archive
from watchword.handlers.explain.session import PastSession
from watchword.handlers.explain.steps import steps_of
from watchword.handlers.explain.trace import Trace, Traced
from watchword.handlers.join.approvals import ApprovalRules
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Judgement,
    NotJudged,
    Refusal,
    Rejudge,
    Theft,
    Waits,
)
from watchword.handlers.join.deciding import World
from watchword.handlers.join.judging import Judge, JudgingOptions
from watchword.handlers.join.lane import needs_lane, verify_in
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.settlement import decided

_OWN_SQL = (
    "this attestor brings its own SQL: it read its own tables as they are today,"
    " and what it wrote was rolled back"
)


class Explainer:
    """Explains with one set of attestors, keys and limits: a deployment's own, or a draft of them."""

    def __init__(
        self,
        crypto: JoinCrypto,
        attestors: Sequence[object],
        policy: JoinPolicy,
        options: JudgingOptions,
        rules: ApprovalRules,
    ) -> None:
        """Take the collaborators. Of the crypto neither the signer nor the answers are used."""
        self._crypto = crypto
        self._attestors: list[Attestor] = [one for one in attestors if is_attestor(one)]
        self._with_sql = {one.id for one in self._attestors if brings_sql(one)}
        self._policy = policy
        self._options = options
        self._rules = rules

    async def explain(
        self, stored: Stored, archive: Archive, tail: Tail, now: datetime, *, as_of_now: bool
    ) -> Explanation:
        """Return how the request is judged.

        Args:
            stored: The request.
            archive: Tables and journal, in a snapshot.
            tail: Every event since the request's own time.
            now: The database's time.
            as_of_now: Whether it is judged now, and not at its own time.

        Raises:
            StoreUnavailable, StoreRejected: a read failed.
        """
        first: Explanation | None = None
        for look in looks(stored, tail, now, as_of_now=as_of_now):
            found = await self.explain_at(look, stored, archive, tail)
            if as_of_now or stored.recorded is None or found.agrees:
                return found
            first = first or found
        if first is None:
            message = "no moment to judge at"
            raise RuntimeError(message)
        why = (
            "judged again it comes to something else than what is recorded: the configuration, files of anchors"
            " or keys have changed since, or it rests on what the journal does not tell"
        )
        return replace(first, notes=(*first.notes, why))

    async def explain_at(
        self, look: Look, stored: Stored, archive: Archive, tail: Tail
    ) -> Explanation:
        """Return how the request is judged at these moments, whatever is recorded; see `explain`."""
        begun, written = look
        trace = Trace()
        candidate = Candidate(stored.incoming)
        session = PastSession(archive, tail, begun)
        locks = session if written is begun else PastSession(archive, tail, written)
        verified, world = await self._judged(candidate, trace, archive, session, locks)
        steps = steps_of(candidate, trace)
        tell(steps, candidate, verified, world)
        notes = _notes(candidate)
        if trace.asked & self._with_sql:
            notes = (*notes, _OWN_SQL)
        return Explanation(
            request=request_facts(candidate)
            | {
                "topic": stored.incoming.topic or None,
                "partition": stored.incoming.partition if stored.incoming.topic else None,
                "offset": stored.incoming.offset if stored.incoming.topic else None,
            },
            judged={
                "at": written.now,
                "world": written.what
                if written is begun
                else f"read {begun.what}, and decided {written.what}",
            },
            verdict=verdict_of(candidate),
            steps=steps,
            recorded=stored.recorded,
            look=look,
            notes=notes,
        )

    async def _judged(
        self,
        candidate: Candidate,
        trace: Trace,
        archive: Archive,
        session: PastSession,
        locks: PastSession,
    ) -> tuple[Judgement | None, World | None]:
        """Set the candidate's final judgement; return the one without locks, and what the locks showed."""
        catalog = Catalog([Traced(one, trace) for one in self._attestors])
        judge = Judge(catalog, self._crypto, self._policy, self._options)
        if candidate.problem is None and candidate.csr is not None:
            known = await session.admissions([candidate.csr.sha256])
            candidate.admitted_before = known.get(candidate.csr.sha256)
        look = await session.look([], [])
        loader = Loader(session)
        try:
            if needs_lane(candidate, judge):
                async with archive.scratch() as scratch:
                    await verify_in(
                        candidate,
                        scratch,
                        lambda tx: judge.examine([candidate], look, loader, tx=tx),
                    )
            else:
                await judge.examine([candidate], look, loader)
        finally:
            await loader.close()
        verified = candidate.judgement
        if not isinstance(verified, Admit | Again | Refusal | NotJudged | Theft | Waits):
            return verified, None
        world, _ = await decided(locks, [candidate], look.now, self._rules)
        return verified, world


def _notes(candidate: Candidate) -> tuple[str, ...]:
    match candidate.judgement:
        case Broken(why):
            return (f"the attestor could not judge: {why}",)
        case Rejudge():
            return ("something that was read would have been judged again",)
        case _:
            return ()
