"""The application: the API, the pages, and what stands around both."""

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from watchword.streams.console.api import PREFIX
from watchword.streams.console.api.routes import api_routes
from watchword.streams.console.office import Office
from watchword.streams.console.oidc import OpenIdProvider
from watchword.streams.console.pages import (
    attestors,
    audit,
    commands,
    nodes,
    overview,
    refusals,
    sign_in,
    tokens,
    waiting,
)
from watchword.streams.console.problems import Told, problem
from watchword.streams.console.session_cookies import SessionCookies
from watchword.streams.console.site import Site, not_found, wrong_page
from watchword.streams.console.walls import Walls

_DOORS = (
    *overview.DOORS,
    *waiting.DOORS,
    *nodes.DOORS,
    *commands.DOORS,
    *refusals.DOORS,
    *attestors.DOORS,
    *tokens.DOORS,
    *audit.DOORS,
)
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Under which address people reach the console."""

    url: str
    """Scheme, host and port."""

    @property
    def is_secure(self) -> bool:
        """Tell whether that is https."""
        return self.url.startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that are answered for; of this machine's own, both names."""
        parts = urlsplit(self.url)
        if parts.hostname in _LOOPBACK:
            return frozenset(parts.netloc.replace(parts.hostname, name) for name in _LOOPBACK)
        return frozenset((parts.netloc,))

    @property
    def origins(self) -> frozenset[str]:
        """The origins of its pages."""
        return frozenset(f"{urlsplit(self.url).scheme}://{host}" for host in self.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What signs sessions, how long they last, and who else vouches for people."""

    session_key: bytes = field(repr=False)
    session_life: timedelta = timedelta(hours=12)
    oidc: OpenIdProvider | None = None
    has_certificates: bool = False
    """Whether TLS asks for client certificates."""


def application(office: Office, place: Place, keys: Keys) -> ASGIApp:
    """Return the application."""
    site = Site(
        office=office,
        cookies=SessionCookies(keys.session_key, place.is_secure),
        origins=place.origins,
        session_life=keys.session_life,
        has_oidc=keys.oidc is not None,
        has_certificates=keys.has_certificates,
    )
    app = Starlette(
        routes=[
            *api_routes(office, place.origins),
            *sign_in.routes(site, place.url, keys.oidc),
            *site.routes(_DOORS),
        ],
        exception_handlers={HTTPException: _missing, 500: _failed},
    )
    app.router.redirect_slashes = False
    return Walls(app, hosts=place.hosts, is_secure=place.is_secure)


async def _missing(request: Request, error: Exception) -> Response:
    if request.url.path.startswith(PREFIX):
        return problem(Told(404, "There is nothing at this address."))
    return await not_found(request, error)


async def _failed(request: Request, error: Exception) -> Response:
    del error
    said = Told(500, "The console failed; its log says why.")
    return problem(said) if request.url.path.startswith(PREFIX) else wrong_page(said)
