"""Phase C: what each request is told, once its transaction has committed."""

from collections.abc import Sequence
from datetime import datetime

from watchword.handlers.crypto.issuers import chain_of
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.responses import Question
from watchword.handlers.errors import SealBroken
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    Fetch,
    NothingWaits,
    NotJudged,
    Refusal,
    Replay,
    Waits,
)
from watchword.handlers.join.dispatching import as_command
from watchword.handlers.join.records import Answer
from watchword.handlers.rows import (
    COMMANDS,
    DEFERRED,
    INVALID,
    JOINED,
    REFUSED,
    UNSUPPORTED,
    AdmittedCsr,
    InboxRow,
    SentCommand,
)
from watchword.schemas.responses import Failure


class Answering:
    """Signs answers."""

    def __init__(
        self, crypto: JoinCrypto, *, renew_fraction: float, retry_after_seconds: int
    ) -> None:
        """`retry_after_seconds` is what every approval deferral says: a constant of the deployment."""
        self._crypto = crypto
        self._answers = crypto.answers
        self._renew_fraction = renew_fraction
        self._retry_after_seconds = retry_after_seconds

    def answer(self, candidate: Candidate, chain: tuple[bytes, ...], now: datetime) -> Answer:
        """Return the answer to a candidate's final judgement; `chain` is what `Signer.chain` returns."""
        question = candidate.question
        try:
            value, outcome, dead_letter = self._say(candidate, question, chain, now)
        except SealBroken:
            # A reply key that nothing can be sealed to: told in clear, which it chose by sending it.
            open_question = Question(
                question.request_sha256, question.request_id, question.csr_sha256
            )
            value, outcome, dead_letter = self._say(candidate, open_question, chain, now)
        return Answer(question.csr_sha256 or candidate.digest, value, outcome, dead_letter)

    def unavailable(self, candidate: Candidate, now: datetime) -> Answer:
        """Return the answer to a request that cannot be judged."""
        candidate.judgement = Broken("unavailable")
        return self.answer(candidate, (), now)

    def _say(
        self, candidate: Candidate, question: Question, chain: tuple[bytes, ...], now: datetime
    ) -> tuple[bytes, str, str | None]:
        answers = self._answers
        match candidate.judgement:
            case Admit(certificate=certificate, renew_after=renew_after) as admit if (
                certificate and renew_after
            ):
                place = admit.rekeys or admit.admission
                value = answers.joined(
                    question,
                    now,
                    node_id=admit.node_text,
                    tenant=place.tenant,
                    pool=place.pool,
                    site=place.site,
                    role=place.role,
                    chain=(certificate.der, *chain_of(certificate.der, chain)),
                    allowed_kinds=admit.admission.allowed_kinds,
                    renew_after=renew_after,
                )
                return value, "joined", None
            case Again(admission):
                return self._admitted(question, admission, chain, now), "joined", None
            case Replay(row=row, admission=admission, sent=sent):
                return self._replayed(question, row, admission, sent, chain, now)
            case Fetch(dispatch=done):
                return self._told(question, done.sent, now, more=done.more)
            case NothingWaits():
                return self._told(question, (), now, more=False)
            case Refusal():
                return answers.refused(question, now), "refused", None
            case NotJudged(outcome, reason, dead_letter):
                code: Failure = "UNSUPPORTED" if outcome == UNSUPPORTED else "INVALID_INPUT"
                return (
                    answers.failed(question, now, code),
                    code.lower(),
                    reason if dead_letter else None,
                )
            case Waits():
                value = answers.approval(
                    question, now, retry_after_seconds=self._retry_after_seconds
                )
                return value, "deferred-approval", None
            case Challenged(challenge):
                value = answers.challenge(
                    question,
                    now,
                    attestor=candidate.attestor or "",
                    challenge=challenge.challenge,
                    state=challenge.state,
                    not_after=challenge.not_after,
                )
                return value, "deferred-challenge", None
            case _:
                return answers.failed(question, now, "UNAVAILABLE"), "unavailable", None

    def _replayed(
        self,
        question: Question,
        row: InboxRow,
        admission: AdmittedCsr | None,
        sent: Sequence[SentCommand],
        chain: tuple[bytes, ...],
        now: datetime,
    ) -> tuple[bytes, str, str | None]:
        answers = self._answers
        outcome = row.outcome
        if outcome == JOINED and admission is not None:
            return self._admitted(question, admission, chain, now), "joined", None
        if outcome == COMMANDS:
            return self._told(question, sent, now, more=False)
        if outcome == REFUSED:
            return answers.refused(question, now), "refused", None
        if outcome == DEFERRED:
            value = answers.approval(question, now, retry_after_seconds=self._retry_after_seconds)
            return value, "deferred-approval", None
        if outcome == INVALID:
            # The dead-letter record may not have been written before the crash that made this a replay.
            lost = row.reason == "join:undecodable"
            return (
                answers.failed(question, now, "INVALID_INPUT"),
                "invalid_input",
                "undecodable" if lost else None,
            )
        if outcome == UNSUPPORTED:
            return answers.failed(question, now, "UNSUPPORTED"), "unsupported", None
        return answers.failed(question, now, "UNAVAILABLE"), "unavailable", None

    def _told(
        self, question: Question, sent: Sequence[SentCommand], now: datetime, *, more: bool
    ) -> tuple[bytes, str, str | None]:
        """Answer with commands; a request without a key to seal them to is told nothing, whatever it asked for."""
        if question.reply_key is None:
            return self._answers.failed(question, now, "INVALID_INPUT"), "invalid_input", None
        said = [as_command(one) for one in sent]
        return self._answers.commands(question, now, said, more=more), "commands", None

    def _admitted(
        self, question: Question, admission: AdmittedCsr, chain: tuple[bytes, ...], now: datetime
    ) -> bytes:
        life = admission.not_after - admission.not_before
        return self._answers.joined(
            question,
            now,
            node_id=str(admission.node_id),
            tenant=admission.tenant,
            pool=admission.pool,
            site=admission.site,
            role=admission.role,
            chain=(admission.der, *chain_of(admission.der, chain)),
            allowed_kinds=admission.allowed_kinds,
            renew_after=admission.not_before + life * self._renew_fraction,
        )
