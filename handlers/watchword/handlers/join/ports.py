"""What the core needs of a store, without knowing which.

A `Session` is one connection that one attempt at a batch owns. Reads outside `begin`/`commit` take
no locks. Every method raises `StoreUnavailable` (try the whole batch again, on a new session) or
`StoreRejected` (our own bug or impossible data: halve the batch).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import RawTransaction, Token
from watchword.handlers.journal import Entry
from watchword.handlers.rows import (
    AdmittedCsr,
    Bucket,
    CertificateRow,
    CommandRow,
    Digest,
    GrantRow,
    InboxClaim,
    InboxRow,
    LockedCommand,
    Look,
    Mark,
    NewRequest,
    NodeRow,
    Pair,
    RefusalRow,
    Renewable,
    RenewedCertificate,
    RequestKey,
    RequestRow,
    RevokedCertificate,
    SentCommand,
    TokenState,
    Writes,
)


class Reads(Protocol):
    """Reads that take no locks; many keys in one query each."""

    async def requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """Return the join requests that exist."""
        ...

    async def grants(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[GrantRow]]:
        """Return open reclaim grants by the subject that has to be proved, the oldest first."""
        ...

    async def renewables(self, tbs: Sequence[Digest]) -> Mapping[Digest, Renewable]:
        """Return certificates with their nodes, by the SHA-256 of their TBS."""
        ...

    async def open_commands(self, nodes: Sequence[UUID]) -> Mapping[UUID, int]:
        """Return how many commands wait for nodes, of those that have any."""
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


class Raw(Protocol):
    """The statements of attestors' authors, in a transaction."""

    async def transaction_id(self) -> str:
        """Return what the author of raw SQL must leave alone: the transaction's id, the role, the search path."""
        ...

    async def raw(
        self, statement: str, arguments: Sequence[object], *, role: str, rows: bool
    ) -> Any:  # noqa: ANN401 - what the author's statement returns
        """Run an attestor author's statement."""
        ...


class Lane(RawTransaction, Protocol):
    """The transaction of an attestor that brings its own SQL, while it verifies."""

    async def answered(self) -> None:
        """Return once PostgreSQL has answered whoever was cut off in a statement; at once, if nobody was.

        Raises:
            StoreUnavailable: it does not answer either: it stalls, and the statement is not to blame.
        """
        ...


class Session(Reads, Raw, Protocol):
    """One connection of one attempt."""

    async def look(
        self,
        digests: Sequence[Digest],
        csrs: Sequence[Digest],
        mark: Mark | None = None,
    ) -> Look:
        """Return the attempt's time and what is known of its digests and CSRs.

        With a mark it is written down, outside every transaction, that these digests are being judged.
        """
        ...

    async def take_up(self, incarnation: UUID) -> Mapping[Digest, int]:
        """Return what was being judged by other incarnations and never settled, with how often it was begun."""
        ...

    async def count_try(self, digest: Digest, tries: int) -> None:
        """Write down, outside every transaction, how often a request was begun."""
        ...

    async def clear(self, digest: Digest) -> None:
        """Forget how often a request was begun: it ends nobody."""
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

    async def lock_grants(self, ids: Sequence[UUID]) -> Mapping[UUID, GrantRow]:
        """Lock reclaim grants in order; return those that are open."""
        ...

    async def use_holders(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """Return which nodes have used up subjects that were lost."""
        ...

    async def unbind(
        self, nodes: Sequence[UUID], kept: Sequence[Pair]
    ) -> Mapping[UUID, list[Pair]]:
        """Drop what locked nodes are bound to, but for these; return what was dropped."""
        ...

    async def use_grants(
        self, used: Mapping[UUID, Digest], forget_hardware: Sequence[UUID], now: datetime
    ) -> None:
        """Mark grants as used by these CSRs, and take nodes' hardware keys away."""
        ...

    async def renew(self, renewed: Sequence[RenewedCertificate], now: datetime) -> None:
        """Write certificates in others' places; their locked nodes become active. Audit rows too."""
        ...

    async def contest(self, csrs: Sequence[Digest], now: datetime) -> set[Digest]:
        """Note that a second key was renewed from certificates of locked nodes; return where it is news."""
        ...

    async def revoke(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Sequence[RevokedCertificate]:
        """Revoke what certificates locked nodes have that may still be used, in order."""
        ...

    async def evict(self, nodes: Sequence[UUID], now: datetime, who: str, why: str) -> None:
        """Let locked nodes attest again before they are nodes again. Audit rows too."""
        ...

    async def lock_commands(
        self, nodes: Sequence[UUID], reported: Sequence[UUID]
    ) -> Mapping[UUID, list[LockedCommand]]:
        """Lock the open commands of locked nodes, and those that they speak of, in order."""
        ...

    async def change_commands(
        self, changed: Sequence[CommandRow], sent: Mapping[UUID, Digest]
    ) -> None:
        """Write rows of locked commands, and with which request commands were handed out."""
        ...

    async def activate(self, nodes: Sequence[UUID], now: datetime, why: str) -> None:
        """Make locked nodes active. Audit rows too."""
        ...

    async def sent_with(self, digests: Sequence[Digest]) -> Mapping[Digest, list[SentCommand]]:
        """Return what requests handed out, as far as their nodes may still be told; no locks."""
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
