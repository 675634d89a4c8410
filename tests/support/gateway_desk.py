"""A gateway's desk without Kafka, clients that ask there, and what they are told."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import httpx

from watchword.handlers.errors import Unavailable
from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.admission import Admitted
from watchword.streams.gateway.answers import Answers
from watchword.streams.gateway.envelope import Envelope
from watchword.streams.gateway.options import Limits, Timings
from watchword.streams.gateway.pending import Pending
from watchword.streams.gateway.published import Published
from watchword.streams.gateway.requests import Headers, Place, Requests
from watchword.streams.gateway.routes import Desk, application
from watchword.streams.gateway.shedding import Window

NOBODY_KNOWS = "/v1/joins/" + "0" * 64


@dataclass
class FakeRequests:
    """Stands for Kafka: keeps what was sent, or is away."""

    sent: list[tuple[Admitted, Headers]] = field(default_factory=list[tuple[Admitted, Headers]])
    is_away: bool = False
    is_broken: bool = False
    known_problem: str | None = None
    may_go_on: asyncio.Event | None = None
    """What sends wait for."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    window: Window = field(default_factory=lambda: Window(2000, deadline_s=5.0))

    async def has_all_of(self, count: int) -> None:
        """Return when so many have come."""
        while len(self.sent) < count:
            self.came.clear()
            await self.came.wait()

    def problem(self) -> str | None:
        """Return why nothing can be sent."""
        return self.known_problem

    def place(self) -> Place | None:
        """Return room for one more."""
        begun = self.window.begin()
        return None if begun is None else Place(self.window, begun, self._keep)

    async def _keep(self, admitted: Admitted, headers: Headers) -> None:
        if self.is_away:
            raise Unavailable
        if self.is_broken:
            message = "a bug that quotes the evidence: s3cret"
            raise RuntimeError(message)
        self.sent.append((admitted, headers))
        self.came.set()
        if self.may_go_on is not None:
            await self.may_go_on.wait()


def make_desk(
    kafka: FakeRequests | None = None,
    *,
    limits: Limits | None = None,
    timings: Timings | None = None,
) -> Desk:
    """Return a desk without Kafka."""
    limits, timings = limits or Limits(), timings or Timings()
    return Desk(
        limits,
        timings,
        cast("Requests", kafka or FakeRequests()),
        Pending(window_s=timings.resend_window_s, capacity=100),
        Answers(requests=100, total_bytes=10**6, per_request=4, ttl_s=900.0),
        Published(),
    )


@asynccontextmanager
async def asking(desk: Desk, *proxies: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of the application, at 127.0.0.1."""
    app = Envelope(application(desk), Proxies(proxies), desk.limits)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def check_problem(response: httpx.Response, status: int, slug: str) -> None:
    """Check that this is that problem, in the one form of all problems."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["type"] == f"urn:watchword:problem:{slug}"
