"""What the join core counts, as metrics: `watchword_join_requests_total` and its attempts.

Labels come from closed lists: attestors that the worker has, outcomes, reasons that were declared.
"""

from collections.abc import Iterable

from prometheus_client import Counter

from watchword.handlers.join.candidate import Candidate, Fetch, NotJudged, Refusal
from watchword.handlers.join.dispatching import Dispatch
from watchword.handlers.join.records import Answer
from watchword.schemas.reasons import CORE, CORE_BY_ID, OTHER, STANDARD_BY_NAME
from watchword.schemas.requests import DEFAULT_ATTESTOR

REQUESTS = Counter(
    "watchword_join_requests",
    "Requests that got their answer, by attestor, outcome and, for a refusal, reason.",
    ["attestor", "outcome", "reason"],
)
RETRIES = Counter("watchword_join_attempts_repeated", "Batches that were judged again.")
HALVED = Counter("watchword_join_batches_halved", "Batches halved to find what PostgreSQL refuses.")

COMMANDS = Counter(
    "watchword_commands",
    "Commands of nodes that asked for them: dispatched, sent again, refused at dispatch, finished.",
    ["what"],
)
SUSPECTS = Counter(
    "watchword_join_suspects",
    "Requests that were being judged when a worker ended: judged alone, or given up.",
    ["what"],
)

_NONE = "none"
_UNKNOWN = "unknown"


class JoinMetrics:
    """Counts; implements `join.observer.Observer`."""

    def __init__(self, attestors: Iterable[object]) -> None:
        """Know the names that labels may have."""
        self._reasons: dict[str, frozenset[str]] = {
            str(getattr(found, "id", "")): frozenset(
                reason.name for reason in getattr(found, "reasons", ())
            )
            | STANDARD_BY_NAME.keys()
            for found in attestors
        }
        self._reasons.setdefault(DEFAULT_ATTESTOR, frozenset(STANDARD_BY_NAME))
        for own in ("renew", "command"):
            self._reasons[own] = frozenset(CORE_BY_ID[own])
        self._counters: dict[tuple[str, str, str], Counter] = {}
        # A series that begins with its first theft has no increase to alert on.
        REQUESTS.labels("renew", "refused", "key-conflict")

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """Count one answer."""
        attestor = candidate.attestor if candidate.attestor in self._reasons else _UNKNOWN
        labels = (attestor or _UNKNOWN, answer.outcome, self._reason(candidate))
        counter = self._counters.get(labels)
        if counter is None:
            counter = self._counters[labels] = REQUESTS.labels(*labels)
        counter.inc()
        if isinstance(candidate.judgement, Fetch):
            _count(candidate.judgement.dispatch)

    def retried(self, why: str) -> None:
        """Count an attempt that is made again."""
        del why
        RETRIES.inc()

    def halved(self) -> None:
        """Count a batch that was halved."""
        HALVED.inc()

    def suspected(self, *, given_up: bool) -> None:
        """Count a request with which a worker may have ended."""
        SUSPECTS.labels("given-up" if given_up else "judged-alone").inc()

    def _reason(self, candidate: Candidate) -> str:
        match candidate.judgement:
            case Refusal(refused):
                core = CORE_BY_ID.get(refused.attestor)
                declared = (
                    self._reasons.get(refused.attestor, frozenset()) if core is None else core
                )
                return refused.reason if refused.reason in declared else OTHER
            case NotJudged(_, reason):
                return reason if reason in CORE else OTHER
            case _:
                return _NONE


def _count(done: Dispatch) -> None:
    COMMANDS.labels("dispatched").inc(len(done.dispatched))
    COMMANDS.labels("sent-again").inc(len(done.sent) - len(done.dispatched))
    COMMANDS.labels("refused").inc(len(done.refused))
    COMMANDS.labels("finished").inc(len(done.finished))
