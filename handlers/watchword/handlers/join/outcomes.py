"""What a settlement writes: rows and journal entries, made from judgements. Pure but for fresh ids."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchword.handlers.catalog import Catalog
from watchword.handlers.errors import Refused
from watchword.handlers.join.approvals import ApprovalRules, Waiting
from watchword.handlers.join.candidate import Admit, Candidate, NotJudged, Refusal
from watchword.handlers.join.counted import Counted, claimed_hardware_key
from watchword.handlers.join.deciding import Effects
from watchword.handlers.join.private_part import joined_private, waiting_private
from watchword.handlers.join.refusal_events import refusal_event
from watchword.handlers.journal import Entry, entry, new_event_id, refusal_key, written_entry
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.rows import (
    Digest,
    NewCertificate,
    NewNode,
    NewSubject,
    Writes,
)
from watchword.schemas.cloudevents import Attributes
from watchword.schemas.events import JoinWaiting
from watchword.schemas.ids import JOIN, ROOT
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import JOIN_REFUSED, NODE_EVENTS

_NODE_JOINED = "node.joined"


class Outcomes:
    """Makes rows and entries for one worker."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        worker: str,
        source: str,
        approvals: ApprovalRules | None = None,
        evicts_on_theft: bool = True,
        registered_kinds: frozenset[str] = BUILT_IN,
    ) -> None:
        """`worker` is this worker's name, `source` the CloudEvents source."""
        self.evicts_on_theft = evicts_on_theft
        self.registered_kinds = registered_kinds
        self.approvals = approvals or ApprovalRules()
        self._catalog = catalog
        self.worker = worker
        self.source = source

    # Joins

    def joins(
        self, effects: Effects, superseded: Mapping[UUID, Sequence[Digest]], now: datetime
    ) -> tuple[Writes, list[Entry]]:
        """Return the rows of the admitted, and one `node.joined` for each in arrival order."""
        nodes: list[NewNode] = []
        rekeyed: list[NewNode] = []
        certificates: list[NewCertificate] = []
        subjects: list[NewSubject] = []
        entries: list[Entry] = []
        for candidate in effects.admitted:
            admit = _admit(candidate)
            node, certificate = _node(candidate, admit), new_certificate(candidate, admit)
            (nodes if admit.rekeys is None else rekeyed).append(node)
            certificates.append(certificate)
            subjects += [
                NewSubject(subject.digest, admit.node_id, subject.kind, subject.value)
                for subject in admit.admission.subjects
            ]
            private = joined_private(
                candidate, admit, node, certificate, superseded.get(node.id, ()), now
            )
            entries.append(self._joined(candidate, admit, node, certificate, private, now))
        return Writes(effects.spends, nodes, rekeyed, certificates, subjects), entries

    def _joined(
        self,
        candidate: Candidate,
        admit: Admit,
        node: NewNode,
        certificate: NewCertificate,
        private: dict[str, Any],
        now: datetime,
    ) -> Entry:
        node_id = admit.node_text
        event_id = new_event_id()
        text_id, at = str(event_id), rfc3339(now)
        # A dictionary and not `NodeJoined`: a test holds the two against each other, and this is
        # the hot path.
        event = {
            "schemaVersion": 1,
            "id": text_id,
            "type": _NODE_JOINED,
            "time": at,
            "tenant": node.tenant,
            "nodeId": node_id,
            "role": node.role,
            "pool": node.pool,
            "site": node.site,
            "attestor": node.attestor,
            "nodeKey": node.node_key_uri or "unattested",
            "tokenId": node.token_id,
            "csrSha256": certificate.csr_sha256.hex(),
            "certificateSerial": certificate.serial.hex(),
            "notBefore": rfc3339(certificate.not_before),
            "notAfter": rfc3339(certificate.not_after),
            "allowedKinds": certificate.allowed_kinds,
            "reclaimed": admit.rekeys is not None,
            "requestId": candidate.question.request_id or "",
        }
        return written_entry(
            orjson.dumps(event),
            Attributes(
                text_id,
                _NODE_JOINED,
                self.source,
                at,
                node_id,
                node.tenant,
                candidate.incoming.traceparent,
            ),
            event_id=event_id,
            occurred_at=now,
            key=node_id.encode(),
            topic=NODE_EVENTS,
            private=private,
        )

    # Joins that wait

    def waiting(self, waiting: Waiting, now: datetime) -> list[Entry]:
        """Return one `join.waiting` for each request that starts to wait, or waits anew."""
        entries: list[Entry] = []
        for key, request in {**waiting.kept, **waiting.renewed}.items():
            row = waiting.rows[key]
            expires_at = now + self.approvals.ttl
            event_id = new_event_id()
            event = JoinWaiting(
                id=str(event_id),
                time=rfc3339(now),
                tenant=request.tenant,
                join_request_id=str(row.id),
                attestor=key[0],
                role=request.role,
                pool=request.pool,
                site=request.site,
                csr_sha256=key[2].hex(),
                request_id=request.request_id,
                expires_at=rfc3339(expires_at),
            )
            private = waiting_private(
                key, request, row, renewed=key in waiting.renewed, now=now, expires_at=expires_at
            )
            entries.append(
                entry(
                    event,
                    event_id=event_id,
                    occurred_at=now,
                    key=str(row.id).encode(),
                    source=self.source,
                    subject=f"join/{request.request_id}",
                    topic=NODE_EVENTS,
                    private=private,
                    traceparent=request.traceparent,
                )
            )
        return entries

    # Refusals and what was not understood

    def refusals(self, candidates: Sequence[Candidate]) -> list[Counted]:
        """Return what has to be recorded of these candidates, in arrival order."""
        found: list[Counted] = []
        for candidate in candidates:
            match candidate.judgement:
                case Refusal(refused):
                    found.append(self._refused(candidate, refused))
                case NotJudged(_, reason):
                    found.append(self.not_understood(candidate, reason))
                case _:
                    pass
        return found

    def _refused(self, candidate: Candidate, refused: Refused) -> Counted:
        return Counted(
            candidate,
            "refused",
            refused.attestor,
            self._catalog.reason(refused.attestor, refused.reason),
            refused.tenant_id or ROOT,
            claimed_hardware_key(candidate),
            new_event_id(),
            refused.tried,
        )

    def not_understood(self, candidate: Candidate, reason: str) -> Counted:
        """Return the record of a request that was not understood; root's, whoever sent it."""
        return Counted(
            candidate,
            "invalid",
            "join",
            self._catalog.reason(JOIN, reason),
            ROOT,
            claimed_hardware_key(candidate),
            new_event_id(),
        )

    def refusal_entry(self, counted: Counted, now: datetime) -> Entry:
        """Return the published detail of one refusal."""
        row = counted.row(published=True)
        return entry(
            refusal_event(row, counted.reason, worker=self.worker, at=now),
            event_id=row.event_id,
            occurred_at=now,
            key=refusal_key(row.tenant, row.attestor, row.reason),
            source=self.source,
            subject=f"join/{row.request_id or row.request_sha256.hex()}",
            topic=JOIN_REFUSED,
            event_class="refusal",
            traceparent=counted.candidate.incoming.traceparent,
        )


def _admit(candidate: Candidate) -> Admit:
    if not isinstance(candidate.judgement, Admit):
        message = "not an admission"
        raise TypeError(message)
    return candidate.judgement


def _node(candidate: Candidate, admit: Admit) -> NewNode:
    """Return the node; a reclaimed one keeps tenant, pool, site and role."""
    place = admit.rekeys or admit.admission
    return NewNode(
        id=admit.node_id,
        tenant=place.tenant,
        pool=place.pool,
        site=place.site,
        role=place.role,
        attestor=candidate.attestor or "",
        token_id=admit.admission.token_id,
        node_key_uri=admit.admission.node_key_uri,
        hardware_key=admit.admission.hardware_key,
    )


def new_certificate(candidate: Candidate, admit: Admit) -> NewCertificate:
    """Return the row of the certificate that was issued for an admission or a renewal."""
    issued = admit.certificate
    if issued is None or candidate.csr is None:
        message = "an admission without a certificate"
        raise RuntimeError(message)
    return NewCertificate(
        csr_sha256=candidate.csr.sha256,
        node_id=admit.node_id,
        serial=issued.serial,
        tbs_sha256=issued.tbs_sha256,
        spki_sha256=candidate.csr.spki_sha256,
        not_before=issued.not_before,
        not_after=issued.not_after,
        allowed_kinds=admit.admission.allowed_kinds,
        node_key_uri=admit.admission.node_key_uri,
        der=issued.der,
        who=f"attestor:{candidate.attestor}",
        detail=f'{{"request":"{candidate.digest.hex()}"}}',
    )
