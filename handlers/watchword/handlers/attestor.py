"""The seam between the join core and the ways a machine can prove itself.

An author of an attestor imports everything from here. Rules for a verifier, each with its reason:

1. Check everything in every round, and spend only in the round that returns an `Admission`: a round may be
   repeated, left out or come late, and a machine that never comes back must cost nothing.
2. Bind what you hand out to the CSR (`context.csr_sha256`): evidence that is not can be used for another key
   by whoever has seen it.
3. Name a tenant only when the evidence has authenticated it: a refusal goes to that tenant's stream.
4. Have no side effects outside `context`: one request may be verified several times, because PostgreSQL was
   away, or because something it had read has changed.
5. What is used up comes from signed content (a serial, a nonce), never from signature bytes: whoever has one
   ECDSA signature can make another of the same text.
6. Refuse with `raise refuse("bad-signature")`; any other exception is a bug, answered `UNAVAILABLE`. An error of a
   typed read is not yours: let it pass.

Times are aware and in UTC, and `context.now` is the only clock. Digests are 32 bytes, of SHA-256. A verification may
take 2 s; who is late five times in a row is not asked for 30 s. It shares the worker's event loop: one that blocks
it, or allocates more than the worker may have, ends the worker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from watchword.handlers.anchors import AnchorReads
from watchword.handlers.definition import Defined, check_attestor, define_attestor
from watchword.handlers.errors import (
    ConfigRefused,
    NotProvable,
    Refused,
    SealBroken,
    tried_digest,
)
from watchword.handlers.reads import (
    BindingReads,
    Node,
    NodeCertificate,
    NodeReads,
    RequestReads,
    Token,
    TokenReads,
)
from watchword.handlers.recorder import Fact, LateFact, Recorder
from watchword.handlers.verdicts import Admission, Approval, Challenge, Deferral, Subject, is_digest
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, TokenId, UnverifiedPayload
from watchword.schemas.reasons import Reason, Severity
from watchword.schemas.requests import Claims

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

__all__ = [
    "CONTRACT",
    "Admission",
    "AnchorReads",
    "Approval",
    "Attestor",
    "AttestorId",
    "BindingReads",
    "Challenge",
    "Claims",
    "ConfigRefused",
    "Deferral",
    "Defined",
    "Evidence",
    "Fact",
    "JoinContext",
    "LateFact",
    "Node",
    "NodeCertificate",
    "NodeId",
    "NodeReads",
    "NotProvable",
    "OtherProofs",
    "RawTransaction",
    "Reason",
    "Recorder",
    "Refused",
    "Refuser",
    "RequestReads",
    "Role",
    "SchemaError",
    "SealBroken",
    "Severity",
    "Staged",
    "Subject",
    "TenantId",
    "Token",
    "TokenId",
    "TokenReads",
    "UnverifiedPayload",
    "check_attestor",
    "define_attestor",
    "is_digest",
    "length_prefixed",
    "read_length_prefixed",
    "refuser",
]

CONTRACT: Final = 1
"""The version of this contract. Within one, a name is never removed and never comes to mean something else;
new fields have defaults, and new methods are the core's to call only if they are there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a machine sent: `payload` in the attestor's own form, and `claims`, all of them unproven."""

    payload: UnverifiedPayload
    claims: Claims


class OtherProofs(Protocol):
    """What other attestors make of evidence that is theirs, for an admission that needs more than one fact."""

    async def prove(
        self, attestor: str, payload: UnverifiedPayload, state: bytes | None = None
    ) -> Admission | Challenge:
        """Have another attestor verify a payload now, for the same CSR, role, claims and time.

        Once in a verification. Return what it proves: the admission that follows has to be `carrying`
        it, and then the other's bindings, uses and spends go with it. A challenge is for the machine;
        hand it on, with its state inside one of your own, and pass that `state` in the round that
        answers it.

        Raises:
            Refused: the other refuses, and so the join is refused, whatever is made of it.
            NotProvable: there is no such attestor, it does not take the role, brings its own SQL, or
                wants an operator's word: then nothing is proved.
        """
        ...


class NobodyElse:
    """Proves nothing: what an attestor has that is itself asked for a proof."""

    async def prove(
        self, attestor: str, payload: UnverifiedPayload, state: bytes | None = None
    ) -> Admission | Challenge:
        """Raise `NotProvable`."""
        del attestor, payload, state
        raise NotProvable


class RawTransaction(Protocol):
    """The join's own transaction, for an attestor that says `uses_tx = True`. One statement a call."""

    async def fetch(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Return the rows."""
        ...

    async def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; no transaction or role control."""
        ...


@dataclass(slots=True)
class Staged:
    """The effects of one verification; kept only if it ends in an `Admission`."""

    spends: list[TokenId] = field(default_factory=list[TokenId])
    uses: list[tuple[bytes, datetime | None]] = field(
        default_factory=list[tuple[bytes, datetime | None]]
    )
    approval: tuple[bytes, bytes] | None = None
    """Subject and snapshot of the approval that the admission consumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinContext:
    """What a verifier may know and do. Effects are staged and kept only with an `Admission`."""

    attestor: AttestorId
    csr_sha256: bytes
    public_key: "PublicKeyTypes"
    role: Role
    now: datetime
    tokens: TokenReads
    nodes: NodeReads
    bindings: BindingReads
    requests: RequestReads
    anchors: AnchorReads
    staged: Staged
    state: bytes | None
    seal: Callable[[bytes, datetime], bytes]
    unseal: Callable[[bytes], bytes]
    others: OtherProofs = field(default_factory=NobodyElse)
    tx: RawTransaction | None = None
    recorder: Recorder | None = None
    """Whoever explains a verification; None while machines join."""

    def step(self, number: int, what: str) -> None:
        """Say which step of the recipe begins, in a sentence that holds if it is passed. For `watchword explain`."""
        if self.recorder is not None:
            self.recorder.step(self.attestor, number, what)

    def found(self, **facts: LateFact) -> None:
        """Say what the step has found: parsed public fields and hashes, never a secret. For `watchword explain`.

        Hexadecimal digests are text; bytes are shown by their SHA-256 alone. What costs something to write may be
        a function, which is called only if somebody listens: `found(names=lambda: ", ".join(names))`.
        """
        if self.recorder is not None:
            said = {name: fact() if callable(fact) else fact for name, fact in facts.items()}
            self.recorder.found(self.attestor, said)

    def spend(self, token_id: TokenId) -> None:
        """Take one use of a token. If none is left at settlement, the join is refused."""
        self.staged.spends.append(token_id)

    def use_once(self, subject: bytes, *, expires_at: datetime | None = None) -> None:
        """Use up 32 bytes of subject under this attestor, for ever or until a time after `now`.

        Raises:
            ValueError: no 32 bytes, or a time that is past already or names no zone.
        """
        if not is_digest(subject):
            message = "a subject is 32 bytes"
            raise ValueError(message)
        # Used up until a past time would be used up for nobody.
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= self.now):
            message = "a use expires in the future"
            raise ValueError(message)
        self.staged.uses.append((subject, expires_at))

    def request_approval(
        self, subject: bytes, grant: Admission, facts: Mapping[str, str] | None = None
    ) -> Approval:
        """Return the deferral that makes an operator decide on this grant for this CSR."""
        return Approval(subject, grant, dict(facts or {}))

    def seal_state(self, data: bytes, ttl: timedelta) -> bytes:
        """Return `data` encrypted and bound to attestor, version, role, CSR and expiry: the only way to make `state`."""
        return self.seal(data, self.now + ttl)

    def open_state(self) -> bytes | None:
        """Return the data of the request's `state`, or None without one.

        Raises:
            SealBroken: it was made for another CSR, attestor, role or deployment, or has expired.
        """
        return None if self.state is None else self.unseal(self.state)


class Attestor(Protocol):
    """Turns evidence of one kind into an admission, a deferral or a refusal.

    Besides these it may have `reasons` (an iterable of `Reason`: why it refuses; a reason that is not declared
    folds into `other`), `uses_tx` (True: each join in a transaction of its own, and `context.tx`), `package` (the
    name of the package with its `migrations`), `at_once` (how many verifications one worker runs at the same time) and
    `on_refusal` (told the reason of each refusal).
    """

    @property
    def id(self) -> str:
        """A DNS label, also the prefix of every reason."""
        ...

    @property
    def version(self) -> str:
        """A challenge of one version is not answered under another."""
        ...

    @property
    def roles(self) -> frozenset[Role]:
        """The roles it admits; any other is refused before `verify`."""
        ...

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Return what the evidence proves; raise what `refuser(id)` makes if it proves nothing.

        Raises:
            Refused: the machine may not join.
        """
        ...


class Refuser(Protocol):
    """Makes the refusals of one attestor."""

    def __call__(
        self, reason: str, *, tenant_id: TenantId | None = None, tried: str | None = None
    ) -> Refused:
        """Return the refusal to raise. Give the tenant only if the evidence authenticated it.

        `tried` is the public id of what the machine tried, such as a token's: it is recorded hashed.
        """
        ...


def refuser(attestor: str) -> Refuser:
    """Return the function that makes this attestor's refusals: `raise refuse("bad-signature")`."""

    def refuse(
        reason: str, *, tenant_id: TenantId | None = None, tried: str | None = None
    ) -> Refused:
        digest = None if tried is None else tried_digest(attestor, tried)
        return Refused(AttestorId(attestor), reason, tenant_id=tenant_id, tried=digest)

    return refuse
