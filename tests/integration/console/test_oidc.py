"""Signing in at an identity provider: a real one, small and ours, over real connections."""

import asyncio
import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest
import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.joins import Bench
from tests.support.operators import URL, Desks, desks
from watchword.streams.console.oidc import OpenIdProvider, Rule
from watchword.streams.dev.free_ports import free_port

pytestmark = pytest.mark.postgres

CLIENT, SECRET = "console", "a secret:with/odd&characters"
BACK = f"{URL}/sign-in/oidc/back"
KEY = RSAKey.generate_key(2048, {"kid": "1"}, private=True)


@dataclass
class Provider:
    """An authorization server that lets everybody in as whoever `claims` says."""

    issuer: str
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "1", "email": "ada@example.org", "groups": ["fleet"]})  # fmt: skip
    spoil: Callable[[dict[str, Any]], dict[str, Any]] = dict
    key: RSAKey = field(default_factory=lambda: KEY)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def app(self) -> Starlette:
        """Return its endpoints."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.describe),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/keys", self.keys),
            ]
        )

    async def describe(self, request: Request) -> Response:
        """OpenID Connect Discovery 1.0, 4."""
        del request
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def authorize(self, request: Request) -> Response:
        """Give a code for what was asked."""
        asked = dict(request.query_params)
        if asked["client_id"] != CLIENT or asked["redirect_uri"] != BACK:
            return Response(status_code=400)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return RedirectResponse(f"{BACK}?code={code}&state={asked['state']}", 303)

    async def token(self, request: Request) -> Response:
        """Give an ID token for a code, once, to the client that shows its secret and verifier."""
        form = dict(parse_qsl((await request.body()).decode()))
        basic = httpx.BasicAuth("console", "a+secret%3Awith%2Fodd%26characters")
        asked = self.codes.pop(form.get("code", ""), None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest())
        if (
            asked is None
            or request.headers["Authorization"] != basic._auth_header
            or challenge.decode().rstrip("=") != asked["code_challenge"]
            or form["redirect_uri"] != BACK
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = self.spoil(
            {
                "iss": self.issuer,
                "aud": CLIENT,
                "iat": now,
                "exp": now + 60,
                "nonce": asked["nonce"],
            }
            | self.claims
        )
        text = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": text})

    async def keys(self, request: Request) -> Response:
        """Give the public keys."""
        del request
        return JSONResponse({"keys": [KEY.as_dict(private=False)]})


@asynccontextmanager
async def serving(provider: Provider, port: int) -> AsyncGenerator[None]:
    """Serve a provider."""
    config = uvicorn.Config(
        provider.app(), port=port, log_level="error", lifespan="off", ws="none", log_config=None
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    running = asyncio.create_task(server.main_loop())
    try:
        yield
    finally:
        server.should_exit = True
        await running
        await server.shutdown()


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    port = free_port()
    provider = Provider(f"http://127.0.0.1:{port}")
    async with serving(provider, port):
        yield provider


@pytest.fixture
async def console(database: str, provider: Provider) -> AsyncGenerator[Desks]:
    rules = (Rule("groups", "fleet", "acme", "approver"), Rule("email", "root@example.org", "root", "admin"))  # fmt: skip
    oidc = OpenIdProvider(
        issuer=provider.issuer,
        client_id=CLIENT,
        client_secret=SECRET,
        redirect_uri=BACK,
        rules=rules,
    )
    async with desks(database, oidc=oidc) as console:
        yield console


async def go(console: Desks, then: str = "/nodes") -> tuple[httpx.AsyncClient, str]:
    """Begin to sign in, and go to the provider and back; return where it leads back to."""
    client = console.bare({"Origin": URL})
    page = await client.post("/sign-in/oidc", data={"next": then})
    assert page.status_code == 200, page.text
    address = page.text.partition('content="0; url=')[2].partition('"')[0].replace("&amp;", "&")
    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(address)
    assert answer.status_code == 303
    return client, answer.headers["Location"]


async def test_whom_the_provider_names_comes_in_as_the_rules_say(
    console: Desks, bench: Bench
) -> None:
    """People leave; their accounts are ended in one place."""
    client, back = await go(console)

    come = await client.get(back)

    assert (come.status_code, come.headers["Location"]) == (303, "/nodes")
    page = (await client.get("/nodes")).text
    assert "oidc:ada@example.org" in page
    assert "approver · tenant acme" in page
    detail = json.loads(
        await bench.one("SELECT detail FROM audit_log WHERE action = 'session.opened'")
    )
    assert detail["by"].startswith("OpenID Connect http://127.0.0.1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda claims: claims | {"nonce": "another"},
        lambda claims: claims | {"aud": "another"},
        lambda claims: claims | {"aud": [CLIENT, "another"]},
        lambda claims: claims | {"iss": "https://evil.example"},
        lambda claims: claims | {"exp": int(time.time()) - 3600},
        lambda claims: {name: value for name, value in claims.items() if name != "exp"},
        lambda claims: {name: value for name, value in claims.items() if name != "sub"},
        lambda claims: claims | {"groups": ["others"]},
        lambda claims: claims | {"groups": "fleet2", "email": "eve@example.org"},
    ],
    ids=["nonce", "audience", "party", "issuer", "expired", "no end", "nobody", "no rule", "text"],
)
async def test_a_word_that_does_not_hold_lets_nobody_in(
    console: Desks, provider: Provider, spoil: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """A token for another application, or of last week, must open nothing here."""
    provider.spoil = spoil
    client, back = await go(console)

    come = await client.get(back)

    assert come.status_code == 403
    assert (await client.get("/nodes")).status_code == 303


async def test_an_answer_that_was_not_asked_for_lets_nobody_in(
    console: Desks, provider: Provider
) -> None:
    """Whoever makes an operator follow a link must not sign them in as somebody else."""
    client, back = await go(console)
    query = parse_qs(urlsplit(back).query)
    stranger = console.bare({"Origin": URL})

    assert (await stranger.get(back)).status_code == 403
    assert (await client.get(back.replace(query["state"][0], "x"))).status_code == 403
    assert (
        await client.get(f"{BACK}?state={query['state'][0]}&error=access_denied")
    ).status_code == 403
    provider.key = RSAKey.generate_key(2048, {"kid": "1"}, private=True)
    assert (await client.get(back)).status_code == 403
    again, back = await go(console)
    del again
    assert (await client.get(back)).status_code == 403


async def test_a_provider_that_is_away_is_said_to_be_away(database: str) -> None:
    """The token and the link still let people in; they have to know why the button does not."""
    oidc = OpenIdProvider(
        issuer="http://127.0.0.1:1", client_id=CLIENT, client_secret=SECRET, redirect_uri=BACK
    )
    async with desks(database, oidc=replace(oidc)) as console:
        answer = await console.bare({"Origin": URL}).post("/sign-in/oidc", data={"next": ""})

    assert answer.status_code == 503
    assert "identity provider does not answer" in answer.text
