"""What operators say of `tpm`: whose chips, and whether strangers' may ask an operator."""

from dataclasses import dataclass

from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.schemas.ids import TenantId


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    """Where a genuine TPM that nobody has enrolled is admitted to, if an operator agrees."""

    tenant: TenantId
    pool: str
    site: str | None = None
    allowed_kinds: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Config:
    """The vendors' CAs, and the waiting room; without one, only enrolled TPMs get in."""

    anchors: Anchors
    waiting_room: WaitingRoom | None = None
