"""Settings of the console: `watchword console`."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from watchword.streams.settings.section import Label, Port, Section

_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))


def _public_url(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        message = "an address such as https://watchword.example, without a path"
        raise ValueError(message)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        message = "only this machine's own addresses may do without https: sessions would be readable on their way"
        raise ValueError(message)
    return value.rstrip("/")


class OidcRule(Section):
    """Whom the identity provider's word lets in, and as what. The first rule that fits counts."""

    claim: str = "groups"
    """A claim of the ID token: a text or a list of texts."""

    value: str
    """What it must be, or have among its items."""

    scope: Label = "root"
    """A tenant, or `root` for the whole deployment."""

    role: Literal["viewer", "approver", "admin"] = "viewer"
    """What they may."""


class ConsoleSettings(Section):
    """The API and the pages for operators: `watchword console`."""

    host: str = "127.0.0.1"
    """Where the console listens; 0.0.0.0 for all interfaces."""

    port: Port = 8081
    """The port of pages and API."""

    public_url: Annotated[str | None, AfterValidator(_public_url)] = None
    """What people type to reach it, such as `https://watchword.example`; `http://127.0.0.1:<port>` if not set.
    Requests for another host are refused, and actions from pages of another origin."""

    tls_certificate_file: Path | None = None
    """PEM chain of the listener; none means plain HTTP, for a proxy in front that ends TLS."""

    tls_key_file: Path | None = None
    """PEM key of that certificate, mode 0600."""

    client_ca_file: Path | None = None
    """PEM of the CAs whose client certificates let operators in, as `watchword operators admit` says of their names.
    TLS has to end here (`tls_certificate_file`): what a proxy says of certificates is not believed."""

    session_key_file: Path | None = None
    """A file of at least 32 random bytes that signs session cookies, the same for all consoles of a deployment.
    Without it each process makes its own: sessions end with it."""

    session_hours: Annotated[float, Field(gt=0, le=168)] = 12.0
    """How long a session lasts."""

    oidc_issuer: str | None = None
    """An OpenID Connect provider, such as `https://login.example`; people sign in there."""

    oidc_client_id: str | None = None
    """As which client the provider knows this console."""

    oidc_client_secret_file: Path | None = None
    """The client's secret."""

    oidc_name_claim: str = "email"
    """The claim of the ID token that names people in the audit log; `sub` where it is missing."""

    oidc_rules: tuple[OidcRule, ...] = ()
    """The tables `[[console.oidc_rules]]`. Whom none fits is not let in."""

    webhook_url: str | None = None
    """Told by POST when joins begin to wait for an operator."""

    webhook_key_file: Path | None = None
    """A file of at least 32 bytes that signs what is told: HMAC-SHA-256 in the header `Watchword-Signature`."""

    webhook_rest_s: Annotated[float, Field(ge=1, le=86_400)] = 60.0
    """The least time between two calls."""

    health_port: Port = 9095
    """Where the console serves its health."""
