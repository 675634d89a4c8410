"""What operators have written down for attestors to lean on: images, sites' keys, cloud accounts, TPMs.

Typed reads of `JoinContext.anchors`. All of it is an operator's word; none of it comes from evidence.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from watchword.schemas.ids import Role, TenantId


@dataclass(frozen=True, slots=True)
class Image:
    """An installed image's secret, by its public id.

    `second_fact` is `approval`, `attestor:<id>` for another attestor's proof, or `unsafe_single_factor`.
    """

    id: str
    secret_sha256: bytes
    tenant: TenantId
    pool: str
    site: str | None
    role: Role
    second_fact: str
    once_per_machine: bool
    """Whether a machine's claimed product UUID may use the image once only."""
    allowed_kinds: tuple[str, ...] | None
    expect: dict[str, str]
    expires_at: datetime | None
    revoked: bool


@dataclass(frozen=True, slots=True)
class DiscoverySite:
    """A site agent's key, by its id. `approval` is `unknown-machines` or `always`."""

    kid: str
    public_key: bytes
    """32 bytes of Ed25519."""
    tenant: TenantId
    site: str
    pool: str
    approval: str
    allowed_kinds: tuple[str, ...]
    expires_at: datetime | None
    revoked: bool


@dataclass(frozen=True, slots=True)
class CloudAccount:
    """A cloud account whose instances may join. `provider` is `aws`, `gcp` or `azure`."""

    provider: str
    account: str
    tenant: TenantId
    pool: str
    site: str | None
    role: Role
    regions: tuple[str, ...] | None
    """Regions (or zones' regions) of which instances may join; None is any."""
    approval: bool
    allowed_kinds: tuple[str, ...] | None
    revoked: bool


@dataclass(frozen=True, slots=True)
class TpmEndorsement:
    """An enrolled endorsement key, by the SHA-256 of its public area (TPM2B_PUBLIC's content)."""

    ek_sha256: bytes
    tenant: TenantId
    pool: str
    site: str | None
    role: Role
    allowed_kinds: tuple[str, ...] | None
    revoked: bool
    approval: bool = False
    """Whether an operator has to agree to its first join."""


@dataclass(frozen=True, slots=True)
class TpmPolicy:
    """What TPMs of a pool have to show: `policy` is the attestor's own JSON object."""

    tenant: TenantId
    pool: str
    policy: dict[str, Any]


class AnchorReads(Protocol):
    """Reads by exact keys; None where there is nothing, or the text can be no key."""

    async def image(self, image_id: str) -> Image | None:
        """Return an image by its public id."""
        ...

    async def discovery_site(self, kid: str) -> DiscoverySite | None:
        """Return a site agent's key by its id."""
        ...

    async def cloud_account(self, provider: str, account: str) -> CloudAccount | None:
        """Return an account of a provider."""
        ...

    async def tpm_endorsement(self, ek_sha256: bytes) -> TpmEndorsement | None:
        """Return an enrolled endorsement key."""
        ...

    async def tpm_policy(self, tenant: TenantId, pool: str) -> TpmPolicy | None:
        """Return what TPMs of a pool have to show."""
        ...
