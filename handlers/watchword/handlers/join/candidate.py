"""One request on its way through an attempt: what was read of it, and what is thought of it so far."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from watchword.handlers.attestor import Admission, Approval, Challenge, Staged
from watchword.handlers.crypto.csr import Csr, load_csr
from watchword.handlers.crypto.profile import IssuedCertificate
from watchword.handlers.crypto.responses import Question
from watchword.handlers.errors import InvalidInput, Refused
from watchword.handlers.join.dispatching import Dispatch
from watchword.handlers.join.records import Incoming
from watchword.handlers.rows import (
    INVALID,
    AdmittedCsr,
    InboxRow,
    NodeRow,
    Pair,
    Renewable,
    SentCommand,
)
from watchword.schemas.canonical import unb64
from watchword.schemas.commands import Report
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import AttestorId
from watchword.schemas.requests import MAX_REQUEST_BYTES, Claims, JoinRequest


@dataclass(frozen=True, slots=True)
class Replay:
    """The inbox has the outcome of these very bytes."""

    row: InboxRow
    admission: AdmittedCsr | None = None
    sent: Sequence[SentCommand] = ()
    """What a request for commands was answered with, as far as it still may be said."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """`INVALID_INPUT` or `UNSUPPORTED`: recorded and counted, but not a refusal."""

    outcome: int
    reason: str
    dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """The CSR was admitted before: the same answer, without effects."""

    admission: AdmittedCsr


@dataclass(frozen=True, slots=True)
class Refusal:
    """The machine stays out."""

    refused: Refused


@dataclass(frozen=True, slots=True)
class Proof:
    """What another attestor proved beside the one that was asked for, and its effects, under its own id."""

    attestor: AttestorId
    admission: Admission
    staged: Staged


@dataclass(slots=True)
class Admit:
    """The evidence holds. Whether it still does under the locks is for the settlement to say."""

    admission: Admission
    staged: Staged
    node_id: UUID
    rekeys: NodeRow | None
    """The node as it was read, if this re-keys one."""
    ban_subjects: tuple[bytes, ...]
    bindings: tuple[Pair, ...]
    objection: Refused | None = None
    """What refuses it unless a ban does first."""
    approval: tuple[bytes, bytes] | None = None
    """Subject and snapshot of the approval that it consumes."""
    grant: UUID | None = None
    """The reclaim grant that it uses up."""
    unbound: Sequence[Pair] = ()
    """What the node loses by a granted reclaim."""
    reused: frozenset[Pair] = frozenset()
    """What the node itself has used up before, and a grant lets it use again."""
    proof: Proof | None = None
    """Another attestor's proof that the admission carries."""
    certificate: IssuedCertificate | None = None
    renew_after: datetime | None = None
    claimed_uses: Mapping[Pair, datetime | None] | None = field(default=None, init=False)
    """What it uses up, once `deciding.use_claims` was asked: that does not change any more."""
    node_text: str = field(init=False)
    """The node's id as text: written often, and slow to write."""

    def __post_init__(self) -> None:
        """Write the id once."""
        self.node_text = str(self.node_id)


@dataclass(slots=True)
class Renewal(Admit):
    """The holder of a node's certificate wants one for a new key. It claims, locks and settles as a re-key does."""

    renews: Renewable = field(kw_only=True)
    """The certificate that it is renewed from, as it was read."""


@dataclass(frozen=True, slots=True)
class Theft:
    """A second key from one certificate: refused, and the node's certificates with it."""

    contested: Renewable
    refused: Refused


@dataclass(slots=True)
class Fetch:
    """A node asks for its commands, and says what became of others. Which it gets is decided under the locks."""

    known: Renewable
    """The certificate that it showed, with its node, as they were read."""
    reports: Sequence[Report]
    ban_subjects: tuple[bytes, ...]
    stopped: Refused | None = None
    """What it is refused with, if it may have none any more: then what waits for it is refused, too."""
    dispatch: Dispatch = field(default_factory=Dispatch)


@dataclass(frozen=True, slots=True)
class NothingWaits:
    """A node asks for commands, there are none, and it has nothing to say: nothing is written."""


@dataclass(frozen=True, slots=True)
class Challenged:
    """The machine has to answer; nothing is written."""

    challenge: Challenge


@dataclass(frozen=True, slots=True)
class Waits:
    """An operator has to agree."""

    approval: Approval
    ban_subjects: tuple[bytes, ...]
    not_after: datetime
    """Until then the same bytes get the same answer."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The attestor broke its contract, or was too late: `UNAVAILABLE`, no row, another try is welcome."""

    why: str


@dataclass(frozen=True, slots=True)
class Rejudge:
    """Something that was read has changed: the next attempt verifies again."""


Judgement = (
    Replay
    | NotJudged
    | Again
    | Refusal
    | Admit
    | Theft
    | Fetch
    | NothingWaits
    | Challenged
    | Waits
    | Broken
    | Rejudge
)


Seen = dict[tuple[str, Hashable], object]
"""What a verifier read that others may change and no lock keeps: rows (None: there is none) by kind and key."""


class Candidate:
    """One distinct request of a batch. `judgement` changes as it goes; the rest is read once."""

    __slots__ = (
        "admitted_before",
        "attestor",
        "claims",
        "csr",
        "digest",
        "incoming",
        "judgement",
        "possession",
        "problem",
        "question",
        "reads",
        "rejudged",
        "request",
        "sealed",
        "seen",
        "state",
    )

    def __init__(self, incoming: Incoming) -> None:
        """Read the record as far as it can be read; nothing is raised."""
        value = incoming.value or b""
        self.incoming = incoming
        self.digest = sha256(value).digest()
        self.request: JoinRequest | None = None
        self.csr: Csr | None = None
        self.sealed = b""
        self.state: bytes | None = None
        self.claims: Claims | None = None
        self.attestor: AttestorId | None = None
        self.problem: NotJudged | None = None
        self.possession: bool = False
        self.judgement: Judgement | None = None
        self.admitted_before: AdmittedCsr | None = None
        self.reads: set[tuple[str, object]] = set()
        self.seen: Seen = {}
        self.rejudged = 0
        self.question = Question(self.digest)
        self._read(value)

    def _read(self, value: bytes) -> None:
        reply_key: bytes | None = None
        try:
            if len(value) > MAX_REQUEST_BYTES:
                self.problem = NotJudged(INVALID, "undecodable", dead_letter=True)
                return
            request = JoinRequest.read(value)
            der = unb64(request.csr)
            self.sealed = unb64(request.sealed)
            if request.reply_key is not None:
                reply_key = unb64(request.reply_key)
            if request.state is not None:
                self.state = unb64(request.state)
        except SchemaError:
            self.problem = NotJudged(INVALID, "undecodable", dead_letter=True)
            return
        self.request = request
        self.attestor = request.resolved_attestor()
        self.question = Question(self.digest, request.request_id, sha256(der).digest(), reply_key)
        try:
            self.csr = load_csr(der)
        except InvalidInput as error:
            self.problem = NotJudged(INVALID, error.reason)
            return

    @property
    def renews(self) -> bool:
        """Whether it asks for a renewal: then no attestor is asked."""
        return self.request is not None and self.request.kind == "renew"

    @property
    def fetches(self) -> bool:
        """Whether it asks for commands: the same, and nothing is admitted."""
        return self.request is not None and self.request.kind == "commands"

    def again(self) -> None:
        """Forget what an attempt thought: a failed attempt leaves nothing behind."""
        self.judgement = None
        self.admitted_before = None
        self.reads = set()
        self.seen = {}
