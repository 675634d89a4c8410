"""Joins that wait for an operator: what is asked for, and what becomes of the asking under the locks.

A verifier that wants an operator's word asks `context.requests.approved(subject, grant)`; if it is
there, the verifier returns the grant, and the settlement consumes the approval with the admission;
if not, it returns `context.request_approval(subject, grant)`. Only what was approved is admitted:
the grant is compared byte by byte with the snapshot that the operator saw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

from watchword.handlers.attestor import Admission, Approval
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Candidate, Judgement, Refusal, Rejudge, Waits
from watchword.handlers.rows import NewRequest, RequestKey, RequestRow
from watchword.schemas.canonical import canonical
from watchword.schemas.ids import JOIN


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """How long a join waits, and how many may."""

    ttl: timedelta = timedelta(days=1)
    per_tenant: int = 1000
    per_site: int = 200


def snapshot_of(grant: Admission) -> bytes:
    """Return the canonical JSON of a grant: everything that an admission gives or binds."""
    return canonical(
        {
            "allowedKinds": None if grant.allowed_kinds is None else list(grant.allowed_kinds),
            "bind": None if grant.bind is None else grant.bind.hex(),
            "certificate": None if grant.certificate is None else grant.certificate.hex(),
            "hardwareKey": grant.hardware_key,
            "node": None if grant.node_id is None else str(grant.node_id),
            "nodeKeyUri": grant.node_key_uri,
            "pool": grant.pool,
            "role": grant.role,
            "site": grant.site,
            "subjects": sorted([s.kind, s.value] for s in grant.subjects),
            "tenant": grant.tenant,
            "token": grant.token_id,
        }
    )


def key_of(candidate: Candidate, subject: bytes) -> RequestKey:
    """Return the key of a candidate's request for this subject."""
    if candidate.csr is None or candidate.attestor is None:
        message = "the candidate was not read"
        raise RuntimeError(message)
    return (candidate.attestor, subject, candidate.csr.sha256)


def new_request(candidate: Candidate, approval: Approval, request_id: UUID) -> NewRequest:
    """Return the row of a candidate that starts to wait. Claims are bounded by their schema."""
    grant = approval.grant
    claims = (
        {}
        if candidate.claims is None
        else candidate.claims.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    )
    return NewRequest(
        key=key_of(candidate, approval.subject),
        id=request_id,
        snapshot=snapshot_of(grant),
        tenant=grant.tenant,
        pool=grant.pool,
        site=grant.site,
        role=grant.role,
        claims=canonical({name: _harmless(said) for name, said in claims.items()}).decode(),
        facts=canonical(
            {name[:64]: value[:256] for name, value in sorted(approval.facts.items())[:32]}
        ).decode(),
        request_id=candidate.question.request_id or "",
        traceparent=candidate.incoming.traceparent,
    )


def _harmless(said: object) -> object:
    """Return what a machine claims without control characters: jsonb takes no NUL, and terminals obey the rest."""
    if isinstance(said, str):
        return "".join(character if character.isprintable() else "?" for character in said)
    if isinstance(said, list | tuple):
        return [_harmless(each) for each in cast("Sequence[object]", said)]
    return said


@dataclass(slots=True)
class Waiting:
    """What the locks showed of requests, and what the batch makes of them."""

    rules: ApprovalRules
    now: datetime
    rows: dict[RequestKey, RequestRow] = field(default_factory=dict[RequestKey, RequestRow])
    made: set[RequestKey] = field(default_factory=set[RequestKey])
    """Rows that this transaction has inserted."""
    per_tenant: dict[str, int] = field(default_factory=dict[str, int])
    """Waiting joins by tenant, with what this batch has added so far."""
    per_site: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    kept: dict[RequestKey, NewRequest] = field(default_factory=dict[RequestKey, NewRequest])
    renewed: dict[RequestKey, NewRequest] = field(default_factory=dict[RequestKey, NewRequest])
    consumed: set[RequestKey] = field(default_factory=set[RequestKey])

    def wait(self, candidate: Candidate, waits: Waits, wanted: NewRequest) -> Judgement:
        """Return what becomes of a candidate that has to wait, in arrival order."""
        key, row = wanted.key, self.rows.get(wanted.key)
        if row is None or key in self.consumed:
            return Rejudge()  # deleted or consumed since
        if key in self.kept or key in self.renewed:
            # An earlier request of this batch waits already: for the same, or it is looked at again.
            asked = self.kept.get(key) or self.renewed[key]
            return waits if asked.snapshot == wanted.snapshot else Rejudge()
        if key in self.made:
            if self._is_full(waits):
                return self._too_many(waits)
            self._count(waits, 1)
            self.kept[key] = wanted
            return waits
        same = row.snapshot == wanted.snapshot
        alive = row.expires_at > self.now
        if same and alive and row.state == "approved":
            return Rejudge()  # approved since it was read
        if same and alive and row.state == "rejected":
            attestor = candidate.attestor or JOIN
            return Refusal(Refused(attestor, "rejected", tenant_id=waits.approval.grant.tenant))
        if same and alive and row.state == "pending":
            return waits
        if row.state != "pending":  # one that waits already is counted, and has its place
            if self._is_full(waits):
                return self._too_many(waits)
            self._count(waits, 1)
        self.renewed[key] = wanted
        return waits

    def consumes(self, key: RequestKey, snapshot: bytes) -> bool:
        """Tell whether an admission may consume its approval now; if so, it has."""
        row = self.rows.get(key)
        if row is None or key in self.consumed or row.state != "approved":
            return False
        if row.snapshot != snapshot or row.expires_at <= self.now:
            return False
        self.consumed.add(key)
        return True

    def counted(self, waiting: Mapping[tuple[str, str | None], int]) -> None:
        """Take how many wait by tenant and site, rows of this transaction's claims included."""
        for (tenant, site), count in waiting.items():
            self.per_tenant[tenant] = self.per_tenant.get(tenant, 0) + count
            if site is not None:
                self.per_site[tenant, site] = count

    def not_yet(self, made: NewRequest) -> None:
        """Take back a claim of this transaction: it counts when its turn comes."""
        self.per_tenant[made.tenant] = self.per_tenant.get(made.tenant, 0) - 1
        if made.site is not None:
            place = (made.tenant, made.site)
            self.per_site[place] = self.per_site.get(place, 0) - 1

    def _is_full(self, waits: Waits) -> bool:
        grant = waits.approval.grant
        return self.per_tenant.get(grant.tenant, 0) >= self.rules.per_tenant or (
            grant.site is not None
            and self.per_site.get((grant.tenant, grant.site), 0) >= self.rules.per_site
        )

    def _too_many(self, waits: Waits) -> Judgement:
        tenant = waits.approval.grant.tenant
        return Refusal(Refused(JOIN, "too-many-waiting", tenant_id=tenant))

    def _count(self, waits: Waits, change: int) -> None:
        grant = waits.approval.grant
        self.per_tenant[grant.tenant] = self.per_tenant.get(grant.tenant, 0) + change
        if grant.site is not None:
            place = (grant.tenant, grant.site)
            self.per_site[place] = self.per_site.get(place, 0) + change
