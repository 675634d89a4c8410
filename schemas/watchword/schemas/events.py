"""What happened, as other systems read it: the values on `node.events` and `security.join.refused`.

Records outlive the code that wrote them. Therefore:
  1. a released field is never removed, renamed or given another meaning;
  2. a new field has a default, and is the last one;
  3. anything else is a new type, or a new `schemaVersion`;
  4. readers tolerate unknown fields in events (a newer release may run beside this one).
`id`, `type` and `time` repeat the CloudEvents headers, because many SIEM pipelines drop those.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel

from watchword.schemas.ids import Role
from watchword.schemas.responses import Instant, Sha256Hex


class Event(
    BaseModel, frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
):
    """The part that all events share."""

    schema_version: Literal[1] = 1
    id: str
    type: str
    time: Instant
    tenant: str


class NodeJoined(Event, frozen=True):
    """A machine became a node, or a node was re-keyed (`reclaimed`)."""

    type: Literal["node.joined"] = "node.joined"
    node_id: str
    role: Role
    pool: str
    site: str | None
    attestor: str
    node_key: str
    """The proven `urn:bc:tpm-ak:…`, else `unattested`."""
    token_id: str | None
    csr_sha256: Sha256Hex
    certificate_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    not_before: Instant
    not_after: Instant
    allowed_kinds: tuple[str, ...] | None
    reclaimed: bool
    request_id: str


class NodeRenewed(Event, frozen=True):
    """A node has a new certificate for a new key; what it was granted stays."""

    type: Literal["node.renewed"] = "node.renewed"
    node_id: str
    role: Role
    pool: str
    site: str | None
    node_key: str
    """The proven `urn:bc:tpm-ak:…`, else `unattested`."""
    csr_sha256: Sha256Hex
    certificate_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    replaces_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    not_before: Instant
    not_after: Instant
    allowed_kinds: tuple[str, ...] | None
    request_id: str
    who: str
    why: str


class NodeKeyConflict(Event, frozen=True):
    """Two different keys were renewed from one certificate: whoever holds its key is not one machine.

    Once for each certificate. `node.evicted` follows in the same transaction, unless the deployment
    only wants to be told.
    """

    type: Literal["node.key.conflict"] = "node.key.conflict"
    node_id: str
    certificate_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The certificate that both renewed from."""
    csr_sha256: Sha256Hex
    """The second CSR."""
    request_id: str
    evicts: bool
    who: str
    why: str


class NodeChanged(Event, frozen=True):
    """A node's standing changed: by an operator, or by the service itself (`who` says).

    Evicted: it must attest again. Banned: it may not. Retired and deleted: it is gone. Unbanned: it is
    evicted now. Activated: it was adopting, and has asked for commands.
    """

    type: Literal[
        "node.evicted",
        "node.banned",
        "node.unbanned",
        "node.retired",
        "node.deleted",
        "node.activated",
    ]
    node_id: str
    role: Role
    pool: str
    site: str | None
    was: str
    """The state before."""
    who: str
    why: str


class NodeReclaimGranted(Event, frozen=True):
    """An operator lets whoever proves a subject become this node, once; `node.joined` says that it did."""

    type: Literal["node.reclaim.granted"] = "node.reclaim.granted"
    node_id: str
    grant_id: str
    attestor: str
    subject_kind: str
    subject_sha256: Sha256Hex
    """SHA-256 over kind, a NUL and value: what bans and grants are found by."""
    expires_at: Instant
    who: str
    why: str


class NodeCertificateRevoked(Event, frozen=True):
    """A certificate of a node counts no more; the next CRL has it."""

    type: Literal["node.certificate.revoked"] = "node.certificate.revoked"
    node_id: str
    certificate_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    not_after: Instant
    who: str
    why: str


CommandEventType = Literal[
    "node.command.enqueued",
    "node.command.dispatched",
    "node.command.refused",
    "node.command.cancelled",
    "node.command.expired",
    "node.command.finished",
]


class NodeCommand(Event, frozen=True):
    """What happened to a command to a node. What it says to the node is told by its digest alone.

    Refused: when it was given, or (with `enqueued` before) when it was to be handed out. Dispatched: handed out for the first
    time; it may be handed out again, and is run once. Finished: the node says what became of it. A command that was
    refused, cancelled or expired after `dispatched_at` may have been run.
    """

    type: CommandEventType
    node_id: str
    command_id: str
    kind: str
    payload_sha256: Sha256Hex
    payload_bytes: int
    state: Literal["queued", "dispatched", "done", "failed", "refused", "cancelled", "expired"]
    """The state that it is in now."""
    reason: str | None
    """Refused: `not-allowed`, `not-registered`, `node-state` or `no-certificate`. Failed: why, as the node says."""
    exit_status: int | None
    enqueued_by: str
    expires_at: Instant
    certificate_serial: str | None
    """The certificate that it was handed out against."""
    dispatched_at: Instant | None
    request_id: str | None
    """The node's request with which this came about."""
    who: str
    why: str


class JoinWaiting(Event, frozen=True):
    """A join waits for an operator; its evidence has authenticated the tenant."""

    type: Literal["join.waiting"] = "join.waiting"
    join_request_id: str
    attestor: str
    role: Role
    pool: str
    site: str | None
    csr_sha256: Sha256Hex
    """What the operator compares with the fingerprint that the agent prints."""
    request_id: str
    expires_at: Instant


class JoinDecided(Event, frozen=True):
    """What became of a join that waited: an operator agreed or did not, or its time ran out.

    A machine that may join now has still to come again: `node.joined` says that it did.
    """

    type: Literal["join.approved", "join.rejected", "join.expired"]
    join_request_id: str
    attestor: str
    role: Role
    pool: str
    site: str | None
    csr_sha256: Sha256Hex
    request_id: str
    expires_at: Instant
    """Until when an approval is good."""
    decided_by: str | None
    """The operator; None if its time ran out."""
    comment: str


class JoinRefused(Event, frozen=True):
    """A machine was refused (`security.join.refused`) or not understood (`security.join.invalid`).

    No evidence; text from the machine is hashed, or bounded in a field that begins with `claimed`.
    """

    type: Literal["security.join.refused", "security.join.invalid"] = "security.join.refused"
    attestor: str
    reason: str
    refusal: str
    """`<attestor>:<reason>`."""
    code: str
    severity: Literal["low", "medium", "high"]
    role: str | None
    csr_sha256: Sha256Hex | None
    claimed_hardware_key_sha256: Sha256Hex | None
    request_id: str | None
    request_sha256: Sha256Hex
    topic: str
    partition: int
    offset: int
    worker: str
    sentence: str = ""
    """What the reason says, for whoever reads the event alone."""
    attack: bool = False
    """Whether the reason hints at an attack rather than at a mistake."""
    tried_sha256: Sha256Hex | None = None
    """Which credential was tried: SHA-256 of `<attestor>:<its public id>`, such as a token's."""
    claimed_address: Annotated[str, Field(max_length=45)] | None = None
    """The address that a gateway saw; whoever writes straight to Kafka can claim any."""


class RefusalWindow(Event, frozen=True):
    """What one bucket recorded, published and held back in one period; all counts are exact."""

    type: Literal["security.join.refused.window"] = "security.join.refused.window"
    attestor: str
    reason: str
    refusal: str
    period_start: Instant
    period_end: Instant
    phase: Literal["start", "running", "end"]
    recorded: int
    published: int
    suppressed: int
    distinct_csrs: int
    distinct_claimed_hardware_keys: int
    first_time: Instant | None
    last_time: Instant | None
    limit: int
    """How many details the bucket publishes in `limit_seconds`, at the most."""
    limit_seconds: int
    request_ids: tuple[str, ...]


AlertKind = Literal[
    "many-credentials",
    "used-up-credential",
    "bound-elsewhere",
    "moved-request",
    "new-reason",
]


class JoinAlert(Event, frozen=True):
    """Refusals that together hint at an attack.

    Counts are of one period. The next alert of its kind, tenant and attestor comes when the time to be quiet
    is over, with all that happened meanwhile.
    """

    type: Literal["security.join.alert"] = "security.join.alert"
    kind: AlertKind
    code: str
    severity: Literal["medium", "high"]
    sentence: str
    attestor: str | None
    refusal: str | None
    """`<attestor>:<reason>`, if all have one."""
    period_start: Instant
    period_end: Instant
    refusals: int
    """How many refusals it is about."""
    subjects: int
    """How many machines, credentials, addresses or requests, as `subject_kind` says."""
    subject_kind: Literal["hardware-key", "address", "credential", "csr", "request", "reason"]
    examples: tuple[str, ...]
    """Up to five subjects, those with most refusals first: hashes, or the address that a gateway saw."""
    request_ids: tuple[str, ...]
    """Up to five requests, to look at the refusals themselves."""


class TrustRotated(Event, frozen=True):
    """A key of the deployment was prepared, activated or retired. Whom agents believe they learn from `trust.bundle` alone."""

    type: Literal["trust.rotated"] = "trust.rotated"
    kind: Literal["signing", "decryption", "challenge", "ca"]
    step: Literal["prepared", "activated", "retired"]
    kid: str
    """The key that it happened to."""
    retired: str | None
    """Activated: the key that was active until then, and is still believed for a while."""
    compromised: bool
    """Retired: whether somebody else may have it."""
    in_hsm: bool
    """Prepared: whether it is in a PKCS#11 module."""
    who: str
    why: str


class Recorded(Event, frozen=True):
    """A change that an operator made: `token.created`, `token.revoked`, `tenant.created` and the like.

    It stands in the journal and is published only where its topic says so; `detail` never holds a secret.
    """

    detail: dict[str, object]
    who: str
    why: str
