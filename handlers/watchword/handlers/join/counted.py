"""A refusal, or what was not understood: to be recorded, counted and perhaps published."""

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.refusal_events import claimed_address
from watchword.handlers.rows import Bucket, RefusalRow
from watchword.schemas.reasons import Reason


@dataclass(frozen=True, slots=True)
class Counted:
    """A refusal, or what was not understood, to be recorded and perhaps published."""

    candidate: Candidate
    type: str
    attestor: str
    reason: Reason
    tenant: str
    hardware_key_sha256: bytes | None
    event_id: UUID
    tried: bytes | None = None

    @property
    def bucket(self) -> Bucket:
        """The bucket that bounds its publication."""
        return (self.tenant, self.attestor, self.reason.name)

    def row(self, *, published: bool) -> RefusalRow:
        """Return the durable row."""
        c = self.candidate
        return RefusalRow(
            type=self.type,
            attestor=self.attestor,
            reason=self.reason.name,
            tenant=self.tenant,
            role=None if c.request is None else c.request.role,
            request_sha256=c.digest,
            request_id=None if c.request is None else c.request.request_id,
            csr_sha256=c.question.csr_sha256,
            hardware_key_sha256=self.hardware_key_sha256,
            topic=c.incoming.topic,
            partition=c.incoming.partition,
            offset=c.incoming.offset,
            published=published,
            event_id=self.event_id,
            tried_sha256=self.tried,
            address=claimed_address(c.incoming.headers),
        )


def claimed_hardware_key(candidate: Candidate) -> bytes | None:
    """Return the SHA-256 of the hardware key that a machine says it has; nobody has proven it."""
    claims = candidate.claims
    if claims is None or claims.hardware_key is None:
        return None
    return sha256(claims.hardware_key.encode()).digest()
