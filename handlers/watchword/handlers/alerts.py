"""Alerts over refusals: what several of them together, or the first of its kind, hint at. Pure.

=====================  ==================================================================================
`many-credentials`     one claimed hardware key, or one address, has tried many tokens, images or the like
`used-up-credential`   a token was tried after its last use
`bound-elsewhere`      a subject that is bound to one node was claimed by another machine
`moved-request`        a sealed request came back under another CSR or envelope
`new-reason`           a reason that this deployment has never met
=====================  ==================================================================================

An alert comes at once, then not again for a while for its kind, tenant and attestor; what happens
meanwhile is in the next one. So a storm makes as many alerts as there are kinds, tenants and attestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from watchword.handlers.journal import Entry, entry, new_event_id, refusal_key
from watchword.schemas.events import AlertKind, JoinAlert
from watchword.schemas.ids import ROOT
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import JOIN_REFUSED

SubjectKind = Literal["hardware-key", "address", "credential", "csr", "request", "reason"]

MANY_CREDENTIALS: AlertKind = "many-credentials"
NEW_REASON: AlertKind = "new-reason"

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """What an alert of a kind says."""

    code: str
    severity: Literal["medium", "high"]
    sentence: str


KINDS: dict[AlertKind, Kind] = {
    "many-credentials": Kind(
        "WA0001", "high", "One machine or address has tried many credentials."
    ),
    "used-up-credential": Kind(
        "WA0002", "medium", "A credential was tried after it had been used up."
    ),
    "bound-elsewhere": Kind(
        "WA0003", "high", "What is bound to one node was claimed by another machine."
    ),
    "moved-request": Kind(
        "WA0004", "high", "A sealed request was altered, or moved to another CSR."
    ),
    "new-reason": Kind("WA0005", "medium", "A reason that has never been met here."),
}


@dataclass(frozen=True, slots=True)
class Watched:
    """A reason of which each refusal is worth an alert, and what its subjects are."""

    kind: AlertKind
    subject_kind: SubjectKind


WATCHED: dict[str, Watched] = {
    "used-up": Watched("used-up-credential", "credential"),
    "bound-elsewhere": Watched("bound-elsewhere", "csr"),
    "not-its-node": Watched("bound-elsewhere", "csr"),
    "unseal": Watched("moved-request", "request"),
}
"""By the reason's name: no attestor has another reason of one of these names."""


@dataclass(frozen=True, slots=True)
class AlertRules:
    """When an alert is due."""

    repeat: timedelta = timedelta(minutes=5)
    """How long an alert of one kind, tenant and attestor is quiet after it was told."""
    credentials: int = 5
    """How many different credentials one machine or address may try within `window`."""
    window: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Found:
    """What an alert is about; counts are exact."""

    kind: AlertKind
    tenant: str
    attestor: str | None
    refusal: str | None
    refusals: int
    subjects: int
    subject_kind: SubjectKind
    examples: tuple[str, ...]
    request_ids: tuple[str, ...]
    first_time: datetime
    last_time: datetime


def new_reason(attestor: str, reason: str, recorded: int, now: datetime) -> Found:
    """Return what is told of a reason that was never met before; root's, because it is no tenant's."""
    return Found(
        kind=NEW_REASON,
        tenant=ROOT,
        attestor=attestor,
        refusal=f"{attestor}:{reason}",
        refusals=recorded,
        subjects=1,
        subject_kind="reason",
        examples=(f"{attestor}:{reason}",),
        request_ids=(),
        first_time=now,
        last_time=now,
    )


def alert(found: Found, *, now: datetime, source: str) -> Entry:
    """Return the journal entry of one alert."""
    kind = KINDS[found.kind]
    event_id = new_event_id()
    event = JoinAlert(
        id=str(event_id),
        time=rfc3339(now),
        tenant=found.tenant,
        kind=found.kind,
        code=kind.code,
        severity=kind.severity,
        sentence=kind.sentence,
        attestor=found.attestor,
        refusal=found.refusal,
        period_start=rfc3339(min(found.first_time, now)),
        period_end=rfc3339(now),
        refusals=found.refusals,
        subjects=found.subjects,
        subject_kind=found.subject_kind,
        examples=found.examples[:EXAMPLES],
        request_ids=found.request_ids[:EXAMPLES],
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=refusal_key(found.tenant, found.attestor or "*", f"!{found.kind}"),
        source=source,
        subject=f"alerts/{found.kind}",
        topic=JOIN_REFUSED,
        event_class="refusal",
    )


def alerts(found: Sequence[Found], *, now: datetime, source: str) -> list[Entry]:
    """Return the entries of alerts, in their order."""
    return [alert(one, now=now, source=source) for one in found]
