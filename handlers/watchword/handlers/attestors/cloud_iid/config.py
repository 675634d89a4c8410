"""What operators say of `cloud-iid`. Accounts, tenants and regions are in `cloud_accounts`."""

from dataclasses import dataclass, field
from datetime import timedelta

from watchword.handlers.attestors.cloud_iid.binding import DEFAULT_AUDIENCE

LEEWAY = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """How AWS's documents are taken."""

    max_age: timedelta = timedelta(hours=1)
    """How long after the start of the instance (`pendingTime`) its document counts."""
    leeway: timedelta = LEEWAY
    unsafe_dsa: bool = False
    """Whether PKCS#7 by DSA and SHA-1 counts."""


@dataclass(frozen=True, slots=True)
class GcpConfig:
    """How Google's identity tokens are taken. The audience is `<audience>/<SHA-256 of the CSR in hex>`."""

    audience: str = DEFAULT_AUDIENCE
    issuer: str = "https://accounts.google.com"
    max_life: timedelta = timedelta(hours=1)
    leeway: timedelta = LEEWAY


@dataclass(frozen=True, slots=True)
class AzureConfig:
    """How Azure's attested documents are taken."""

    names: tuple[tuple[str, str], ...] = (
        ("azure", "metadata.azure.com"),
        ("azure-us-gov", "metadata.azure.us"),
        ("azure-cn", "metadata.azure.cn"),
    )
    """Partition and the name that its metadata service signs with, or below which it does."""
    max_life: timedelta = timedelta(hours=24)
    leeway: timedelta = LEEWAY
    nonce: bool = False
    """Whether the nonce must be the CSR's. The service may give a cached document with another one."""


@dataclass(frozen=True, slots=True)
class Config:
    """All of it."""

    aws: AwsConfig = field(default_factory=AwsConfig)
    gcp: GcpConfig = field(default_factory=GcpConfig)
    azure: AzureConfig = field(default_factory=AzureConfig)
