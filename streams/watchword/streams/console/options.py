"""What a console is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from watchword.streams.console.office import Office
from watchword.streams.console.oidc import OpenIdProvider
from watchword.streams.console.webhook import Webhook


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM chain and key of the listener, and the CAs whose certificates operators may show."""

    certificate: Path
    key: Path
    client_authorities: Path | None = None


def _nobody(url: str) -> OpenIdProvider | None:
    del url
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Where it listens, who it is for its visitors, and what it works with."""

    office: Office
    session_key: bytes = field(repr=False)
    """Signs the cookies of sessions; at least 32 bytes."""
    host: str = "127.0.0.1"
    port: int = 8081
    public_url: str | None = None
    """None: `http(s)://<host>:<port>`, of the port that is listened on."""
    tls: TlsFiles | None = None
    session_life: timedelta = timedelta(hours=12)
    oidc: Callable[[str], OpenIdProvider | None] = _nobody
    """The identity provider, told the public address."""
    webhook: Webhook | None = None
    health_host: str = "127.0.0.1"
    health_port: int = 9095
