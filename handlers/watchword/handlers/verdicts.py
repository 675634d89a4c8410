"""What a verification may end in, beside a refusal: an admission, a challenge, or an approval to wait for.

Authors of attestors import these from `watchword.handlers.attestor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import TypeGuard, TypeVar

from watchword.schemas.ids import NodeId, Role, TenantId, TokenId

T = TypeVar("T")


def is_digest(value: object) -> TypeGuard[bytes]:
    """Tell whether a value is 32 bytes: what names a subject."""
    return isinstance(value, bytes) and len(value) == 32  # noqa: PLR2004 - SHA-256


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that evidence proves, by which a machine can be banned: `kind` such as `ek`, `token`, `site`."""

    kind: str
    value: str

    @property
    def digest(self) -> bytes:
        """SHA-256 over kind, a NUL and value: 32 bytes."""
        return _subject_digest(self.kind, self.value)


@lru_cache(
    maxsize=4096
)  # a join asks for each of its subjects several times, all joins for some of them
def _subject_digest(kind: str, value: str) -> bytes:
    return sha256(f"{kind}\0{value}".encode()).digest()


@dataclass(frozen=True, slots=True)
class Admission:
    """The evidence holds: this machine may join, as this.

    `node_id` asks to re-key that node (the core checks that it may); `bind` is 32 bytes that belong
    to one node for good; `hardware_key` is a proven key's name; `allowed_kinds` None is unrestricted.
    """

    tenant: TenantId
    role: Role
    pool: str
    site: str | None = None
    node_id: NodeId | None = None
    token_id: TokenId | None = None
    bind: bytes | None = None
    allowed_kinds: tuple[str, ...] | None = None
    node_key_uri: str | None = None
    hardware_key: str | None = None
    subjects: tuple[Subject, ...] = ()
    certificate: bytes | None = None
    """SHA-256 of the TBS of the node's certificate whose key was proved; it may re-key that node."""

    def carrying(self, proof: "Admission") -> "Admission":
        """Return this admission with all that another attestor's `proof` says of the machine.

        Its place and kinds stay this one's. What the proof binds is bound by the core, under the
        other attestor's id.

        Raises:
            ValueError: the two contradict each other.
        """
        more = tuple(subject for subject in proof.subjects if subject not in self.subjects)
        return replace(
            self,
            node_id=_one_of(self.node_id, proof.node_id),
            token_id=_one_of(self.token_id, proof.token_id),
            node_key_uri=_one_of(self.node_key_uri, proof.node_key_uri),
            hardware_key=_one_of(self.hardware_key, proof.hardware_key),
            certificate=_one_of(self.certificate, proof.certificate),
            subjects=self.subjects + more,
        )


def _one_of(ours: T | None, theirs: T | None) -> T | None:
    if ours is not None and theirs is not None and ours != theirs:
        message = "two proofs contradict each other"
        raise ValueError(message)
    return theirs if ours is None else ours


@dataclass(frozen=True, slots=True)
class Challenge:
    """Not yet: the machine has to answer `challenge`. `state` comes from `context.seal_state`."""

    challenge: bytes
    state: bytes
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """Not yet: an operator has to agree to `grant`. Made by `context.request_approval`.

    `subject` is 32 bytes that name the machine; `facts` is what was proved of it, for the operator's
    eyes: at most 32 names of 64 characters with values of 256.
    """

    subject: bytes
    grant: Admission
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


Deferral = Challenge | Approval
