"""Consoles on a real database, and operators who use them."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import httpx

from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.api_tokens import ApiTokenOrder, create_api_token
from watchword.handlers.operators.sessions import create_link
from watchword.handlers.store.connection import Database
from watchword.streams.console.application import Keys, Place, application
from watchword.streams.console.office import Office
from watchword.streams.console.oidc import OpenIdProvider

ADA = Actor("ada", "a test")
HOST = "127.0.0.1:8081"
URL = f"http://{HOST}"
KEY = b"k" * 32
API = "/api/v1"


@dataclass(frozen=True, slots=True)
class Desks:
    """A console in this process, and clients of it."""

    database: Database
    app: Any

    async def token(self, role: OperatorRole = "admin", scope: str = "root") -> str:
        """Return the text of a new API token."""
        order = ApiTokenOrder(name=f"{role}-of-{scope}", scope=scope, role=role)
        return (await create_api_token(self.database, ADA, order)).text

    async def client(self, role: OperatorRole = "admin", scope: str = "root") -> httpx.AsyncClient:
        """Return a client of the API with a token of its own."""
        return self.bare({"Authorization": f"Bearer {await self.token(role, scope)}"})

    def bare(self, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        """Return a client without any."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url=URL, headers=headers
        )

    async def visitor(
        self, role: OperatorRole = "admin", scope: str = "root", who: str = "ada"
    ) -> httpx.AsyncClient:
        """Return a browser's client that is signed in."""
        link = await create_link(self.database, ADA, who=who, scope=scope, role=role)
        client = self.bare({"Origin": URL, "Sec-Fetch-Site": "same-origin"})
        signed_in = await client.post("/sign-in", data={"link": link})
        assert signed_in.status_code == 303, signed_in.text
        return client


@contextlib.asynccontextmanager
async def desks(
    dsn: str, *, oidc: OpenIdProvider | None = None, office: Office | None = None
) -> AsyncGenerator[Desks]:
    """Give a console on this database."""
    database = Database(dsn, application_name="watchword-test-console")
    made = (
        Office(database=database, cluster="test")
        if office is None
        else replace(office, database=database)
    )
    app = application(made, Place(url=URL), Keys(session_key=KEY, oidc=oidc))
    try:
        yield Desks(database, app)
    finally:
        await database.close()


async def get(client: httpx.AsyncClient, path: str, **query: str) -> dict[str, Any]:
    """Return what the API answers, which has to be an answer of this version."""
    answer = await client.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["schemaVersion"] == 1
    return found


async def sends(client: httpx.AsyncClient, node: str, **more: object) -> dict[str, Any]:
    """Let a command wait for a node, through the API; return its row."""
    body = {"node": node, "kind": "logs.collect", "why": "?", **more}
    answer = await client.post("/api/v1/commands", json=body)
    assert answer.status_code == 200, answer.text
    row: dict[str, Any] = answer.json()
    return row


def form_token(page: str) -> str:
    """Return what a page's forms carry."""
    return page.partition('name="form_token" value="')[2].partition('"')[0]
