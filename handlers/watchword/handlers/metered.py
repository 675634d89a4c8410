"""Counting what an attestor makes of evidence, and how long it takes: on for every attestor of a worker.

`watchword_attestor_verifications_total` has one count for each run of `verify`, and a request may be verified
several times; how requests were answered is counted once, elsewhere (`watchword_join_requests_total`).
"""

import time
import weakref
from collections.abc import Callable
from typing import Any, Final, Literal

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Attestor,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
)
from watchword.handlers.errors import Refused, StoreRejected, Unavailable

_log = structlog.get_logger(__name__)

Outcome = Literal["admitted", "deferred-approval", "deferred-challenge", "refused", "failed"]

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "admitted",
    "deferred-approval",
    "deferred-challenge",
    "refused",
    "failed",
)
"""What a verification can come to. `failed` is a bug of the attestor's, or it was late and was cancelled."""

_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Up to the time limit."""

_VERIFICATIONS = "watchword_attestor_verifications"
_SECONDS = "watchword_attestor_verify_seconds"

_KNOWN: "weakref.WeakKeyDictionary[CollectorRegistry, tuple[Counter, Histogram]]" = (
    weakref.WeakKeyDictionary()
)
"""A registry takes each series once."""


class Metered:
    """An attestor that is counted, and otherwise what it was."""

    def __init__(
        self,
        attestor: Attestor,
        registry: CollectorRegistry,
        *,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take the attestor, and where to count; `seconds` is a clock that only ever goes forward."""
        self.id = attestor.id
        self.version = attestor.version
        self.roles = attestor.roles
        self.reasons: Any = getattr(attestor, "reasons", ())
        self.uses_tx = bool(getattr(attestor, "uses_tx", False))
        self.at_once: int | None = getattr(attestor, "at_once", None)
        self.package: str | None = getattr(attestor, "package", None)
        self.on_refusal: Callable[[str], None] | None = getattr(attestor, "on_refusal", None)
        self.metered = attestor
        """What is counted."""
        self._seconds = seconds
        runs, took = _series(registry)
        # All labels at once: a series that begins with its first failure has no rate of failures.
        self._runs = {outcome: runs.labels(attestor.id, outcome) for outcome in OUTCOMES}
        self._took = took.labels(attestor.id)

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Let the attestor verify, and count what came of it."""
        started = self._seconds()
        try:
            found = await self.metered.verify(evidence, context)
        except Refused as refused:
            self._count("refused", started)
            self._tell(refused)
            raise
        except (Unavailable, StoreRejected):
            raise  # the batch is tried again: nothing came of this run
        except BaseException:
            self._count("failed", started)
            raise
        self._count(_outcome(found), started)
        return found

    def _count(self, outcome: Outcome, started: float) -> None:
        self._runs[outcome].inc()
        self._took.observe(self._seconds() - started)

    def _tell(self, refused: Refused) -> None:
        if self.on_refusal is None:
            return
        try:
            self.on_refusal(refused.reason)
        except Exception as error:  # noqa: BLE001 - a hook decides nothing
            _log.error("on_refusal broke", attestor=self.id, error=type(error).__name__)


def metered(attestor: Attestor, registry: CollectorRegistry) -> Metered:
    """Return the attestor with its outcomes and durations counted in `registry`.

    One that is metered already is not counted twice. An attestor's `on_refusal`, if it has one, is told the
    reason of each of its refusals; what the hook raises is logged, and changes nothing.
    """
    return attestor if isinstance(attestor, Metered) else Metered(attestor, registry)


def _outcome(found: object) -> Outcome:
    match found:
        case Admission():
            return "admitted"
        case Approval():
            return "deferred-approval"
        case Challenge():
            return "deferred-challenge"
        case _:
            return "failed"


def _series(registry: CollectorRegistry) -> tuple[Counter, Histogram]:
    """Return the two series of a registry; all attestors share them."""
    known = _KNOWN.get(registry)
    if known is None:
        runs = Counter(
            _VERIFICATIONS,
            "Runs of verify, by attestor and outcome; a request may take several.",
            ["attestor", "outcome"],
            registry=registry,
        )
        took = Histogram(
            _SECONDS,
            "How long verify took.",
            ["attestor"],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        known = _KNOWN[registry] = (runs, took)
    return known
