"""What the core needs of a store, without knowing which.

A `Session` is one connection that one attempt at a batch owns. Reads outside `begin`/`commit` take
no locks. Every method raises `StoreUnavailable` (try the whole batch again, on a new session) or
`StoreRejected` (our own bug or impossible data: halve the batch).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import Token
from watchword.handlers.journal import Entry
from watchword.schemas.ids import Role

Digest = bytes
"""32 bytes of SHA-256."""

Pair = tuple[str, bytes]
"""(attestor, subject) of a use or binding; (`csr` or `key`, SHA-256) of an admission claim."""

JOINED, REFUSED, DEFERRED, INVALID, UNSUPPORTED = 1, 2, 3, 4, 5
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
    keys: Mapping[Digest, UUID]


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


@dataclass(frozen=True, slots=True)
class NewSubject:
    """A row of `node_subjects`."""

    subject: Digest
    node_id: UUID
    kind: str
    value: str


class RefusalRow(NamedTuple):
    """A row of `refusals`; fields in the order of the type `new_refusal`. `type` is `refused` or `invalid`."""

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


class Reads(Protocol):
    """Reads that take no locks; many keys in one query each."""

    async def requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """Return the join requests that exist."""
        ...

    async def certificates(self, tbs: Sequence[Digest]) -> Mapping[Digest, CertificateRow]:
        """Return the certificates that were issued to nodes."""
        ...

    async def nodes_by_subject(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[UUID]]:
        """Return the living nodes of which subjects were proven, the newest first."""
        ...

    async def images(self, ids: Sequence[str]) -> Mapping[str, Image]:
        """Return images by their public ids."""
        ...

    async def discovery_sites(self, kids: Sequence[str]) -> Mapping[str, DiscoverySite]:
        """Return the keys of site agents."""
        ...

    async def cloud_accounts(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], CloudAccount]:
        """Return accounts by provider and account."""
        ...

    async def tpm_endorsements(self, eks: Sequence[Digest]) -> Mapping[Digest, TpmEndorsement]:
        """Return enrolled endorsement keys."""
        ...

    async def tpm_policies(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], TpmPolicy]:
        """Return what TPMs have to show, by tenant and pool."""
        ...

    async def tokens(self, ids: Sequence[str]) -> Mapping[str, Token]:
        """Return the tokens that exist."""
        ...

    async def nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """Return the nodes that exist."""
        ...

    async def bindings(self, pairs: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """Return the nodes that subjects are bound to."""
        ...

    async def bindings_of(self, nodes: Sequence[UUID]) -> Mapping[Pair, UUID]:
        """Return every binding of these nodes."""
        ...


class Session(Reads, Protocol):
    """One connection of one attempt."""

    async def look(
        self, digests: Sequence[Digest], csrs: Sequence[Digest], keys: Sequence[Digest]
    ) -> Look:
        """Return the attempt's time and what is known of its digests, CSRs and public keys."""
        ...

    async def admissions(self, csrs: Sequence[Digest]) -> Mapping[Digest, AdmittedCsr]:
        """Return the admissions of CSRs."""
        ...

    async def begin(self) -> None:
        """Open the transaction and wait for bans that run: its first statement."""
        ...

    async def commit(self) -> None:
        """Commit. When it raises, whether it happened is unknown; the inbox tells."""
        ...

    async def rollback(self) -> None:
        """Undo everything; never raises (a broken connection is dropped)."""
        ...

    async def claim_inbox(self, claims: Sequence[InboxClaim], now: datetime) -> set[Digest]:
        """Claim digests in order; return those that are ours."""
        ...

    async def read_inbox(self, digests: Sequence[Digest]) -> Mapping[Digest, InboxRow]:
        """Return recorded outcomes."""
        ...

    async def lock_tokens(self, ids: Sequence[str]) -> Mapping[str, TokenState]:
        """Lock tokens in order and return what can change of them."""
        ...

    async def lock_nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """Lock nodes in order."""
        ...

    async def claim_admissions(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """Claim CSRs and public keys for nodes; return what was won."""
        ...

    async def holders_of_admissions(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """Return who has what was lost."""
        ...

    async def claim_uses(
        self, wanted: Mapping[Pair, tuple[UUID, datetime | None]], now: datetime
    ) -> set[Pair]:
        """Use up subjects, also ones whose use has expired; return what was won."""
        ...

    async def claim_bindings(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """Bind subjects to nodes; return what was won."""
        ...

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """Return which subjects are banned."""
        ...

    async def give_back(
        self,
        admissions: Sequence[Pair],
        uses: Sequence[Pair],
        bindings: Sequence[Pair],
        inbox: Sequence[Digest],
    ) -> None:
        """Delete claims that nobody won."""
        ...

    async def correct(
        self,
        admissions: Mapping[Pair, UUID],
        uses: Mapping[Pair, tuple[UUID, datetime | None]],
        bindings: Mapping[Pair, UUID],
        inbox: Sequence[InboxClaim],
    ) -> None:
        """Put right the provisional owners and outcomes."""
        ...

    async def supersede(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Mapping[UUID, list[Digest]]:
        """Revoke the current certificates of locked nodes; return their CSR digests by node."""
        ...

    async def write(self, writes: Writes, now: datetime) -> None:
        """Write nodes, certificates, subjects, spends and audit rows."""
        ...

    async def claim_slots(self, need: Mapping[Bucket, int]) -> Mapping[Bucket, int]:
        """Return how many details of each bucket may be published now."""
        ...

    async def write_refusals(self, rows: Sequence[RefusalRow], worker: str, now: datetime) -> None:
        """Add refusal rows."""
        ...

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append to the journal: the last statement before the commit."""
        ...

    async def claim_requests(
        self, wanted: Sequence[NewRequest], now: datetime, expires_at: datetime
    ) -> set[RequestKey]:
        """Insert join requests that are not there; return those that were inserted."""
        ...

    async def lock_requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """Lock join requests in order."""
        ...

    async def lock_places(self, tenants: Sequence[str]) -> None:
        """Make batches that add waiting joins of one tenant take turns."""
        ...

    async def waiting(self, tenants: Sequence[str]) -> Mapping[tuple[str, str | None], int]:
        """Return how many joins wait, by tenant and site."""
        ...

    async def settle_requests(
        self,
        given_back: Sequence[RequestKey],
        renewed: Sequence[NewRequest],
        consumed: Sequence[RequestKey],
        now: datetime,
        expires_at: datetime,
    ) -> None:
        """Delete requests that no deferral kept, let others wait anew, mark approvals as consumed."""
        ...

    async def savepoint(self) -> None:
        """Set the lane's savepoint."""
        ...

    async def rollback_to_savepoint(self) -> None:
        """Undo what came after the savepoint."""
        ...

    async def transaction_id(self) -> str:
        """Return what the author of raw SQL must leave alone: the transaction's id, the role, the search path."""
        ...

    async def raw(self, statement: str, arguments: Sequence[object], *, rows: bool) -> Any:  # noqa: ANN401 - what the author's statement returns
        """Run an attestor author's statement."""
        ...


class JoinStore(Protocol):
    """Gives sessions."""

    async def session(self) -> Session:
        """Return a session; raises `StoreUnavailable`."""
        ...

    async def lane(self) -> Session:
        """Return a session of the small pool for attestors that bring their own SQL."""
        ...

    async def release(self, session: Session, *, broken: bool) -> None:
        """Take a session back; a broken one is closed and never used again."""
        ...
