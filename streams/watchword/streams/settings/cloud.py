"""Settings of the attestor `cloud-iid`: whose word counts as a cloud's, and for how long."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from watchword.handlers.attestors.cloud_iid.binding import DEFAULT_AUDIENCE
from watchword.streams.settings.limits import AttestorLimits
from watchword.streams.settings.section import Names, Pairs, Section

_DAY_S = 86_400
Leeway = Annotated[int, Field(ge=0, le=600)]
Partition = Annotated[str, Field(pattern=r"^azure(?:-[a-z]+)*$")]
Host = Annotated[str, Field(pattern=r"^[a-z0-9-]+(?:\.[a-z0-9-]+)+$", max_length=253)]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _addresses(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Take addresses that nobody on the way can answer for."""
    for url in urls:
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            is_good = bool(host) and not (parts.username or parts.password or parts.fragment)
            is_good &= parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
        except ValueError:
            is_good = False
        if not is_good:
            message = "https://host/path, without user or fragment (http only on this machine)"
            raise ValueError(message)
    return urls


class AwsSettings(Section):
    """How AWS's instance identity documents are taken."""

    max_age_s: Annotated[int, Field(ge=60, le=366 * _DAY_S)] = 3600
    """How long after the start of an instance (`pendingTime`) its document counts."""

    leeway_s: Leeway = 120
    """By how much AWS's clock may be off."""

    unsafe_dsa: bool = False
    """Whether the oldest kind of signature counts, DSA with SHA-1. Whoever has money enough can forge it."""


class GcpSettings(Section):
    """How Google's identity tokens are taken."""

    audience: Annotated[str, Field(pattern=r"^[!-.0-~]{1,100}$")] = DEFAULT_AUDIENCE
    """What this service is called in tokens; agents are told the same with `--audience`. A token is for
    `<audience>/<SHA-256 of the CSR>`."""

    max_life_s: Annotated[int, Field(ge=60, le=_DAY_S)] = 3600
    """The longest life of a token. Google gives an hour."""

    leeway_s: Leeway = 120
    """By how much Google's clock may be off."""

    jwks_urls: Annotated[Names, AfterValidator(_addresses)] = ()
    """Where the worker itself fetches Google's keys, in the background, such as
    `https://www.googleapis.com/oauth2/v3/certs`. No proxy is used and no redirect followed. Until the first answer
    a worker consumes nothing, unless the anchor folder has a key set. Empty: only files count."""

    jwks_refresh_s: Annotated[int, Field(ge=60, le=_DAY_S)] = 3600
    """How often they are fetched again. What was fetched last stays in force while an address is away."""


class AzureSettings(Section):
    """How Azure's attested documents are taken."""

    names: Annotated[dict[Partition, Host], Pairs] = Field(
        default_factory=lambda: {
            "azure": "metadata.azure.com",
            "azure-us-gov": "metadata.azure.us",
            "azure-cn": "metadata.azure.cn",
        }
    )
    """Partition of the anchors → the name of its metadata service. Certificates have this name, or one label more in front."""

    max_life_s: Annotated[int, Field(ge=60, le=7 * _DAY_S)] = _DAY_S
    """The longest life of a document."""

    leeway_s: Leeway = 120
    """By how much Azure's clock may be off."""

    nonce: bool = False
    """Whether the nonce must be this CSR's. It has ten digits, and the service may give a cached document with
    another one: such machines then wait until the cache is over."""


class CloudIidSettings(AttestorLimits):
    """`[attestors.cloud-iid]`: the limits of any attestor, the clouds' anchors, and how old their word may be."""

    anchors_folder: Path | None = None
    """The folder of the clouds' certificates and key sets, with its `anchors.json`; `watchword anchors import` fills it."""

    expired: Literal["refuse", "accept"] = "refuse"
    """What a pinned certificate of AWS means after its end: `refuse`, or `accept` it as a pin of its key. Azure's
    certificates are parts of a path, and their end always counts."""

    reload_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """How often the folder is looked at. A changed `anchors.json` is loaded without a restart; SIGHUP looks at once."""

    aws: AwsSettings = AwsSettings()
    """The table `[attestors.cloud-iid.aws]`."""

    gcp: GcpSettings = GcpSettings()
    """The table `[attestors.cloud-iid.gcp]`."""

    azure: AzureSettings = AzureSettings()
    """The table `[attestors.cloud-iid.azure]`."""
