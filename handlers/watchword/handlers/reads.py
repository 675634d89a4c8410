"""What a verifier may read: tokens, nodes, what is bound to them, and what operators have agreed to.

Typed reads of `JoinContext`; those of operators' own rows are in `anchors`. They take no locks, and the core looks
again at what can have changed. Authors of attestors import these from `watchword.handlers.attestor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from watchword.handlers.verdicts import Admission, Subject
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, TokenId


@dataclass(frozen=True, slots=True)
class Token:
    """A join token's row. `expect` narrows by claims (`productUuid`, `serial`, `mac`, `hardwareKey`) or names a `node`."""

    id: TokenId
    secret_sha256: bytes
    tenant: TenantId
    pool: str
    site: str | None
    role: Role
    uses_left: int
    expires_at: datetime | None
    revoked: bool
    allow_reclaim: bool
    allowed_kinds: tuple[str, ...] | None
    expect: dict[str, str]


@dataclass(frozen=True, slots=True)
class Node:
    """A node's row. `state` is `adopting`, `active`, `evicted`, `banned`, `retired` or `deleted`."""

    id: NodeId
    tenant: TenantId
    pool: str
    site: str | None
    role: Role
    state: str
    attestor: AttestorId
    node_key_uri: str | None
    hardware_key: str | None


class TokenReads(Protocol):
    """Join tokens, by public id."""

    async def get(self, token_id: str) -> Token | None:
        """Return the token; None if there is none, or the text can be no id."""
        ...


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """A certificate that was issued to a node. `is_current` and not `revoked`: the one in force."""

    node_id: NodeId
    spki_sha256: bytes
    not_before: datetime
    not_after: datetime
    allowed_kinds: tuple[str, ...] | None
    node_key_uri: str | None
    is_current: bool
    revoked: bool


class NodeReads(Protocol):
    """Nodes, by id, certificate or proven subject."""

    async def certificate(self, tbs_sha256: bytes) -> NodeCertificate | None:
        """Return a certificate of ours by the SHA-256 of its TBS, whatever became of it."""
        ...

    async def with_subject(self, subject: Subject) -> Sequence[NodeId]:
        """Return the living nodes of which a subject was proven, the newest first."""
        ...

    async def with_subjects(
        self, subjects: Sequence[Subject]
    ) -> Mapping[Subject, Sequence[NodeId]]:
        """Return the same for several subjects, read at once."""
        ...

    async def get(self, node_id: UUID) -> Node | None:
        """Return the node, in whatever state it is."""
        ...


class BindingReads(Protocol):
    """What this attestor has bound to a node for good, by 32 bytes of subject."""

    async def get(self, subject: bytes) -> NodeId | None:
        """Return the node that the subject is bound to; raises `ValueError` unless 32 bytes."""
        ...


class RequestReads(Protocol):
    """Approvals of this attestor, for this CSR."""

    async def approved(self, subject: bytes, grant: Admission) -> bool:
        """Tell whether an operator agreed to exactly this grant, and let the admission consume that.

        Return `grant` after True, and `context.request_approval(subject, grant)` after False. A word
        given for another grant or another CSR does not count.
        """
        ...
