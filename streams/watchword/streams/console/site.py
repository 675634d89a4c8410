"""The pages as HTTP resources: who is let in, forms that are ours, and what is said when something is wrong."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from watchword.handlers.errors import Denied, WatchwordError
from watchword.handlers.operators.sessions import Session, find_session
from watchword.streams.console.client_certificates import certificate_of
from watchword.streams.console.forms import Form, check_origin, one, read_form, safe_next
from watchword.streams.console.office import Office
from watchword.streams.console.problems import Told, told
from watchword.streams.console.rendering import STATIC, render, static_address, static_bytes
from watchword.streams.console.session_cookies import SessionCookies
from watchword.streams.console.visit import NO_STORE, Visit, see

_log = structlog.get_logger(__name__)

Page = Callable[[Visit], Awaitable[Response]]

_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_SERVER_ERRORS: Final = 500


@dataclass(frozen=True, slots=True)
class Door:
    """One page: `GET` looks, `POST` acts."""

    method: str
    path: str
    page: Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the pages have in common."""

    office: Office
    cookies: SessionCookies
    origins: frozenset[str]
    """Whose forms are taken: this site's own origin, by each of its names."""
    session_life: timedelta
    has_oidc: bool = False
    has_certificates: bool = False
    extra: Sequence[BaseRoute] = field(default=())

    def routes(self, doors: Sequence[Door]) -> list[BaseRoute]:
        """Return the routes of pages."""
        by_path: dict[str, dict[str, Page]] = {}
        for door in doors:
            by_path.setdefault(door.path, {})[door.method] = door.page
        statics = [Route(static_address(name), _static(name), methods=["GET"]) for name in STATIC]
        return [
            *statics,
            *(
                Route(path, self._resource(pages), methods=list(pages))
                for path, pages in by_path.items()
            ),
        ]

    async def form_of(self, request: Request) -> Form:
        """Return a form that came from this site; raises `Denied` or `BadArgument`."""
        check_origin(request, self.origins)
        return await read_form(request)

    async def session_of(self, request: Request) -> Session | None:
        """Return the visitor's session; one that a certificate opened is its holder's alone."""
        text = self.cookies.read(request)
        session = None if text is None else await find_session(self.office.database, text)
        if session is not None and session.certificate is not None:
            shown = certificate_of(request)
            if shown is None or session.certificate not in shown.names:
                return None
        return session

    def _resource(self, pages: dict[str, Page]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                session = await self.session_of(request)
                if session is None:
                    return self._sign_in(request)
                method = "GET" if request.method == "HEAD" else request.method
                return await self._answer(request, session, pages[method])
            except ClientDisconnect:
                return Response(status_code=499, headers=NO_STORE)
            except (WatchwordError, ValidationError) as error:
                return wrong(error, again=_again(request))

        return answer

    async def _answer(self, request: Request, session: Session, page: Page) -> Response:
        form: Form = {}
        token = self.cookies.form_token(session.id)
        visit = Visit(request, self.office, session, form, token)
        try:
            if request.method == "POST":
                form = await self.form_of(request)
                if not self.cookies.is_form_token(session.id, one(form, "form_token")):
                    message = "this form is not one of this session: nothing was done"
                    raise Denied(message)
                visit = Visit(request, self.office, session, form, token)
            return await page(visit)
        except (WatchwordError, ValidationError) as error:
            return wrong(error, visit, _again(request))

    def _sign_in(self, request: Request) -> Response:
        if request.method == "POST":
            return HTMLResponse(render("ended.html", {"title": "Signed out"}), 401, NO_STORE)
        if request.headers.get("HX-Request") == "true":
            return Response(status_code=204, headers=NO_STORE | {"HX-Redirect": "/sign-in"})
        wanted = _again(request)
        return see("/sign-in", {"next": wanted} if wanted != "/" else None)


def _again(request: Request) -> str:
    """Return the address of a page that was looked at; the first page's for an act, which is not done again by a link."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return wanted if request.method in {"GET", "HEAD"} and safe_next(wanted) else "/"


def wrong(error: Exception, visit: Visit | None = None, again: str = "/") -> Response:
    """Say what went wrong, in a page."""
    said = told(error)
    if said.status >= _SERVER_ERRORS:
        _log.error("page failed", error=str(error), kind=type(error).__name__)
    return wrong_page(said, visit, again)


_TITLES: Final = {
    400: "That cannot be done",
    403: "Not allowed",
    404: "There is no such thing",
    405: "There is no such action",
    409: "Somebody else was first",
    500: "The console failed",
    503: "Away for the moment",
}


def wrong_page(said: Told, visit: Visit | None = None, again: str = "/") -> Response:
    """Return a page that says what is wrong, and where to try again."""
    title = _TITLES.get(said.status, "That cannot be done")
    if visit is not None and said.status < _SERVER_ERRORS:
        return visit.page("wrong.html", status=said.status, title=title, detail=said.detail)
    headers = NO_STORE | ({"Retry-After": "2"} if said.status == 503 else {})  # noqa: PLR2004 - away
    body = render("wrong_alone.html", {"title": title, "detail": said.detail, "again": again})
    return HTMLResponse(body, said.status, headers)


async def not_found(request: Request, error: Exception) -> Response:
    """Answer for an address that there is not, or a method that it has not."""
    del request
    status = error.status_code if isinstance(error, HTTPException) else 404
    detail = "There is nothing at this address." if status == 404 else "An act is sent by a form."  # noqa: PLR2004
    response = wrong_page(Told(status, detail))
    if isinstance(error, HTTPException):
        response.headers.update(error.headers or {})
    return response


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        del request
        return Response(static_bytes(name), headers=_FOR_EVER, media_type=STATIC[name])

    return answer
