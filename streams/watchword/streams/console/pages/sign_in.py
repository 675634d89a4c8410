"""Signing in: by a link that is good once, an API token, a client certificate, or at an identity provider; and signing out."""

from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchword.handlers.errors import Denied, WatchwordError
from watchword.handlers.operators.certificates import ClientCertificate
from watchword.handlers.operators.sessions import (
    Opened,
    close_session,
    open_by_certificate,
    open_by_identity,
    open_by_link,
    open_by_token,
)
from watchword.streams.console.client_certificates import certificate_of
from watchword.streams.console.forms import one, safe_next
from watchword.streams.console.oidc import STATE_SECONDS, OpenIdProvider
from watchword.streams.console.problems import Told
from watchword.streams.console.rendering import render
from watchword.streams.console.site import Site, wrong, wrong_page
from watchword.streams.console.visit import NO_STORE, see

CALLBACK: Final = "/sign-in/oidc/back"
_STATE_COOKIE: Final = "watchword-oidc"
_LONGEST_NEXT: Final = 500

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(site: Site, url: str, provider: OpenIdProvider | None) -> list[BaseRoute]:
    """Return the routes by which people come and go."""
    del url
    desk = _FrontDesk(site, provider)
    found: list[BaseRoute] = [
        Route("/sign-in", _safely(desk.look), methods=["GET"]),
        Route("/sign-in", _safely(desk.come), methods=["POST"]),
        Route("/sign-out", _safely(desk.go), methods=["POST"]),
    ]
    if provider is not None:
        found += [
            Route("/sign-in/oidc", _safely(desk.ask_provider), methods=["POST"]),
            Route(CALLBACK, _safely(desk.come_back), methods=["GET"]),
        ]
    return found


class _FrontDesk:
    def __init__(self, site: Site, provider: OpenIdProvider | None) -> None:
        self._site = site
        self._provider = provider

    async def look(self, request: Request) -> Response:
        """Show the forms. A link is used by its form, not by looking at it: previews of links look, too."""
        return self._forms(
            request,
            link=request.query_params.get("link", ""),
            then=request.query_params.get("next", ""),
        )

    async def come(self, request: Request) -> Response:
        """Open a session by a link, a certificate or a token."""
        site = self._site
        form = await site.form_of(request)
        link, token, then = one(form, "link"), one(form, "token"), one(form, "next")
        database, life, cluster = site.office.database, site.session_life, site.office.cluster
        try:
            if link:
                opened = await open_by_link(database, link, life, cluster)
            elif one(form, "by") == "certificate":
                opened = await open_by_certificate(database, _shown(request), life, cluster)
            else:
                opened = await open_by_token(database, token, life, cluster)
        except Denied as error:
            return self._forms(request, then=then, problem=str(error), status=403)
        return self._let_in(opened, then)

    async def go(self, request: Request) -> Response:
        """End the session."""
        site = self._site
        form = await site.form_of(request)
        session = await site.session_of(request)
        if session is not None:
            if not site.cookies.is_form_token(session.id, one(form, "form_token")):
                return wrong_page(Told(403, "this form is not one of this session"))
            await close_session(site.office.database, session)
        response = see("/sign-in")
        site.cookies.take_away(response)
        return response

    async def ask_provider(self, request: Request) -> Response:
        """Send the visitor to the identity provider."""
        site, provider = self._site, self._provider
        if provider is None:
            return wrong_page(Told(404, "There is nothing at this address."))
        form = await site.form_of(request)
        then = one(form, "next")
        kept = then if safe_next(then) and len(then) <= _LONGEST_NEXT else ""
        address, cookie = await provider.begin(site.cookies.key, kept)
        # A page that goes there by itself: a redirect of a form would have to be in the policy of every page.
        page = render("to_provider.html", {"title": "Sign in", "address": address})
        response = HTMLResponse(page, 200, NO_STORE)
        response.set_cookie(
            _STATE_COOKIE,
            cookie,
            max_age=STATE_SECONDS,
            path="/sign-in",
            secure=site.cookies.is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    async def come_back(self, request: Request) -> Response:
        """Take the provider's answer."""
        site, provider = self._site, self._provider
        if provider is None:
            return wrong_page(Told(404, "There is nothing at this address."))
        cookie = request.cookies.get(_STATE_COOKIE, "")
        try:
            access, then = await provider.end(site.cookies.key, cookie, request.query_params)
        except Denied as error:
            return self._forms(request, problem=str(error), status=403)
        opened = await open_by_identity(
            site.office.database, access, site.session_life, provider.issuer, site.office.cluster
        )
        response = self._let_in(opened, then)
        response.delete_cookie(_STATE_COOKIE, path="/sign-in")
        return response

    def _let_in(self, opened: Opened, then: str) -> Response:
        response: RedirectResponse | Response = see(then if then and safe_next(then) else "/")
        self._site.cookies.put(response, opened.text, self._site.session_life)
        return response

    def _forms(
        self,
        request: Request,
        *,
        link: str = "",
        then: str = "",
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        values = {
            "title": "Sign in",
            "link": link,
            "then": then if safe_next(then) else "",
            "has_oidc": self._site.has_oidc,
            "has_certificates": self._site.has_certificates,
            "certificate": certificate_of(request),
            "problem": problem,
        }
        return HTMLResponse(render("sign_in.html", values), status, NO_STORE)


def _shown(request: Request) -> ClientCertificate:
    shown = certificate_of(request)
    if shown is None:
        message = "your browser showed no client certificate"
        raise Denied(message)
    return shown


def _safely(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (WatchwordError, ValidationError) as error:
            return wrong(error)

    return answer
