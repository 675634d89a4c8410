"""The rows that the join core reads and writes, without knowing of which store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from watchword.schemas.ids import Role

Digest = bytes
"""32 bytes of SHA-256."""

Pair = tuple[str, bytes]
"""(attestor, subject) of a use or binding; (`csr` or `key`, SHA-256) of an admission claim."""

CommandState = Literal["queued", "dispatched", "done", "failed", "refused", "cancelled", "expired"]

JOINED, REFUSED, DEFERRED, INVALID, UNSUPPORTED, COMMANDS = 1, 2, 3, 4, 5, 6
"""Outcomes in the inbox."""


@dataclass(frozen=True, slots=True)
class InboxRow:
    """The recorded outcome of request bytes."""

    digest: Digest
    outcome: int
    node_id: UUID | None
    csr_sha256: Digest | None
    reason: str | None
    not_after: datetime | None


@dataclass(frozen=True, slots=True)
class Look:
    """What is known before anything is judged; `now` judges and stamps the attempt."""

    now: datetime
    inbox: Mapping[Digest, InboxRow]
    csrs: Mapping[Digest, UUID]
    has_grants: bool = True
    """Whether any reclaim is granted; mostly none is, and nobody looks for one."""


class Mark(NamedTuple):
    """Who judges, for whoever comes after a worker that ended: name, batch in flight, and this one run of it."""

    worker: str
    slot: int
    incarnation: UUID


NO_MARK = (None, None, None)
"""Nothing is being judged."""


@dataclass(frozen=True, slots=True)
class AdmittedCsr:
    """The admission of a CSR and what became of it since."""

    csr_sha256: Digest
    node_id: UUID
    serial: bytes
    der: bytes
    not_before: datetime
    not_after: datetime
    allowed_kinds: tuple[str, ...] | None
    stands: bool
    """The certificate is current and unrevoked, and the node adopting or active."""
    tenant: str
    pool: str
    site: str | None
    role: Role


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node under its lock, or as read."""

    id: UUID
    tenant: str
    pool: str
    site: str | None
    role: Role
    state: str
    attestor: str
    node_key_uri: str | None
    hardware_key: str | None
    generation: int
    version: int = 1
    """Counts every change of the node: what was judged by another version is judged again."""


@dataclass(frozen=True, slots=True)
class TokenState:
    """What can change of a token, under its lock."""

    uses_left: int
    expires_at: datetime | None
    revoked: bool


class InboxClaim(NamedTuple):
    """The outcome that the attempt expects for request bytes; fields in the order of the type `inbox_claim`."""

    digest: Digest
    outcome: int
    node_id: UUID | None
    csr_sha256: Digest | None
    reason: str | None
    not_after: datetime | None


class NewNode(NamedTuple):
    """A row of `nodes`; fields in the order of the type `new_node`."""

    id: UUID
    tenant: str
    pool: str
    site: str | None
    role: Role
    attestor: str
    token_id: str | None
    node_key_uri: str | None
    hardware_key: str | None


class NewCertificate(NamedTuple):
    """A row of `node_certs`; fields in the order of the type `new_certificate`."""

    csr_sha256: Digest
    node_id: UUID
    serial: bytes
    tbs_sha256: Digest
    spki_sha256: Digest
    not_before: datetime
    not_after: datetime
    allowed_kinds: tuple[str, ...] | None
    node_key_uri: str | None
    der: bytes
    who: str
    detail: str
    """JSON object for the audit row."""


class NewSubject(NamedTuple):
    """A row of `node_subjects`; fields in the order of the type `new_subject`."""

    subject: Digest
    node_id: UUID
    kind: str
    value: str


class RefusalRow(NamedTuple):
    """A row of `refusals`; fields in the order of the type `refusal_row`. `type` is `refused` or `invalid`."""

    type: str
    attestor: str
    reason: str
    tenant: str
    role: str | None
    request_sha256: Digest
    request_id: str | None
    csr_sha256: Digest | None
    hardware_key_sha256: Digest | None
    topic: str
    partition: int
    offset: int
    published: bool
    event_id: UUID
    """Of its event, whether that is published or not."""
    tried_sha256: Digest | None
    address: str | None


@dataclass(frozen=True, slots=True)
class Writes:
    """Everything that can conflict with nobody, for one statement each."""

    spends: Mapping[str, int]
    nodes: Sequence[NewNode]
    rekeyed: Sequence[NewNode]
    certificates: Sequence[NewCertificate]
    subjects: Sequence[NewSubject]


Bucket = tuple[str, str, str]
"""(tenant stream, attestor, reason)."""


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """A certificate that was issued to a node, by the SHA-256 of its TBS."""

    tbs_sha256: Digest
    node_id: UUID
    spki_sha256: Digest
    not_before: datetime
    not_after: datetime
    allowed_kinds: tuple[str, ...] | None
    node_key_uri: str | None
    is_current: bool
    revoked: bool


@dataclass(frozen=True, slots=True)
class Renewable:
    """A certificate that a node may renew from, with its node: both as of one moment."""

    csr_sha256: Digest
    serial: bytes
    certificate: CertificateRow
    node: NodeRow
    successor_spki: Digest | None
    """The key of the certificate that a renewal gave in this one's place."""
    contested: bool
    """Whether a second key was renewed from it before."""


class RenewedCertificate(NamedTuple):
    """What a renewal writes: the certificate that goes, by its CSR, and the one that comes."""

    superseded: Digest
    certificate: NewCertificate


class RevokedCertificate(NamedTuple):
    """A certificate that was revoked just now."""

    node_id: UUID
    csr_sha256: Digest
    serial: bytes
    not_after: datetime


@dataclass(frozen=True, slots=True)
class GrantRow:
    """An open reclaim grant: the node, and the proof that was named."""

    id: UUID
    node_id: UUID
    attestor: str
    subject: Digest
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command to a node, as its row has it; what it says to the node stands elsewhere, while it is open."""

    id: UUID
    node_id: UUID
    tenant: str
    kind: str
    payload_sha256: Digest
    payload_bytes: int
    state: CommandState
    version: int
    reason: str | None
    exit_status: int | None
    enqueued_at: datetime
    enqueued_by: str
    why: str
    expires_at: datetime
    dispatched_at: datetime | None
    certificate_serial: bytes | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class LockedCommand:
    """A command of a locked node, with the node's certificate that is in force; without one nothing is handed out."""

    row: CommandRow
    payload: bytes | None = field(repr=False)
    """None if it has ended."""
    serial: bytes | None
    allowed_kinds: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SentCommand:
    """What a node is told, or was told with the same request before."""

    id: UUID
    node_id: UUID
    kind: str
    expires_at: datetime
    payload: bytes = field(repr=False)
    serial: bytes
    allowed_kinds: tuple[str, ...] | None


RequestKey = tuple[str, bytes, bytes]
"""(attestor, subject, SHA-256 of the CSR) of a join that waits or waited for an operator."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A join request as read, or under its lock. `state` is pending, approved, rejected, expired or consumed."""

    key: RequestKey
    id: UUID
    state: str
    version: int
    snapshot: bytes
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A row of `join_requests` that waits. `claims` and `facts` are JSON objects."""

    key: RequestKey
    id: UUID
    snapshot: bytes
    tenant: str
    pool: str
    site: str | None
    role: Role
    claims: str
    facts: str
    request_id: str
    traceparent: str | None = None
    """No column: for the event alone."""
