"""What renewals write, and what a second key from one certificate sets off: rows, and events for the journal."""

from dataclasses import replace
from datetime import datetime

from watchword.handlers.join.candidate import Candidate, Renewal, Theft
from watchword.handlers.join.deciding import Effects
from watchword.handlers.join.outcomes import Outcomes, new_certificate
from watchword.handlers.join.ports import Session
from watchword.handlers.join.private_part import renewed_private
from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.handlers.node_events import (
    Change,
    as_changed,
    certificate_revoked,
    key_conflict,
    node_changed,
)
from watchword.handlers.rows import NewCertificate, RenewedCertificate
from watchword.schemas.events import NodeRenewed
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import NODE_EVENTS

_THEFT = "two keys were renewed from one certificate"


async def write_renewals(
    session: Session, effects: Effects, outcomes: Outcomes, now: datetime
) -> list[Entry]:
    """Write the renewals and thefts of a batch, whose nodes are locked; return what the journal is told."""
    entries: list[Entry] = []
    renewed: list[RenewedCertificate] = []
    for candidate in effects.renewed:
        renewal = _renewal(candidate)
        certificate = new_certificate(candidate, renewal)
        renewed.append(RenewedCertificate(renewal.renews.csr_sha256, certificate))
        entries.append(_renewed(candidate, renewal, certificate, outcomes.source, now))
    if renewed:
        await session.renew(renewed, now)
    if effects.thefts:
        entries += await _write_thefts(session, effects, outcomes, now)
    return entries


async def _write_thefts(
    session: Session, effects: Effects, outcomes: Outcomes, now: datetime
) -> list[Entry]:
    change = Change(f"worker:{outcomes.worker}", _THEFT, outcomes.source, now)
    contested = await session.contest(
        sorted(theft.contested.csr_sha256 for _, theft in effects.thefts), now
    )
    entries = [
        _conflict(candidate, theft, change, outcomes)
        for candidate, theft in effects.thefts
        if theft.contested.csr_sha256 in contested
    ]
    if not outcomes.evicts_on_theft:
        return entries
    nodes = {theft.contested.node.id: theft.contested.node for _, theft in effects.thefts}
    ids = sorted(nodes)
    await session.evict(ids, now, change.who, change.why)
    entries += [
        node_changed("node.evicted", as_changed(nodes[one]), "evicted", change) for one in ids
    ]
    for revoked in await session.revoke(ids, now, change.why):
        entries.append(certificate_revoked(revoked, nodes[revoked.node_id].tenant, change))
    return entries


def _conflict(candidate: Candidate, theft: Theft, change: Change, outcomes: Outcomes) -> Entry:
    return key_conflict(
        theft.contested,
        csr_sha256=candidate.question.csr_sha256 or b"",
        request_id=candidate.question.request_id or "",
        evicts=outcomes.evicts_on_theft,
        change=replace(change, traceparent=candidate.incoming.traceparent),
    )


def _renewal(candidate: Candidate) -> Renewal:
    if not isinstance(candidate.judgement, Renewal):
        message = "not a renewal"
        raise TypeError(message)
    return candidate.judgement


def _renewed(
    candidate: Candidate,
    renewal: Renewal,
    certificate: NewCertificate,
    source: str,
    now: datetime,
) -> Entry:
    node, event_id = renewal.renews.node, new_event_id()
    event = NodeRenewed(
        id=str(event_id),
        time=rfc3339(now),
        tenant=node.tenant,
        node_id=renewal.node_text,
        role=node.role,
        pool=node.pool,
        site=node.site,
        node_key=certificate.node_key_uri or "unattested",
        csr_sha256=certificate.csr_sha256.hex(),
        certificate_serial=certificate.serial.hex(),
        replaces_serial=renewal.renews.serial.hex(),
        not_before=rfc3339(certificate.not_before),
        not_after=rfc3339(certificate.not_after),
        allowed_kinds=certificate.allowed_kinds,
        request_id=candidate.question.request_id or "",
        who=f"node:{renewal.node_text}",
        why="renewal",
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=renewal.node_text.encode(),
        source=source,
        subject=renewal.node_text,
        topic=NODE_EVENTS,
        private=renewed_private(renewal, certificate, now),
        traceparent=candidate.incoming.traceparent,
    )
