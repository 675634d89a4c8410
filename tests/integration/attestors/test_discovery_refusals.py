"""discovery refuses: each way in which an assertion can be wrong."""

from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.anchors import SiteAgent
from tests.support.joins import Bench, Machine, join_bench
from tests.support.proving import (
    last_reason,
)
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.schemas.canonical import canonical

pytestmark = pytest.mark.postgres


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service that takes assertions."""
    async with join_bench(database, attestors=[DiscoveryAttestor()]) as bench:
        yield bench


@pytest.fixture
async def agent(bench: Bench) -> SiteAgent:
    """Give the agent of a site where known machines need no operator."""
    return await SiteAgent(bench).registered()


Change = Callable[[SiteAgent, Machine], Awaitable[bytes]]


async def _unknown_key(agent: SiteAgent, machine: Machine) -> bytes:
    stranger = SiteAgent(agent.bench, JwsSigner("k9", Ed25519PrivateKey.generate()))
    return await stranger.asserted(machine)


async def _another_key(agent: SiteAgent, machine: Machine) -> bytes:
    forger = SiteAgent(agent.bench, JwsSigner(agent.key.kid, Ed25519PrivateKey.generate()))
    return await forger.asserted(machine)


async def _another_type(agent: SiteAgent, machine: Machine) -> bytes:
    payload = (await agent.asserted(machine)).split(b".")[1]
    body = urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    return agent.key.sign(body, "watchword-response")


async def _revoked_key(agent: SiteAgent, machine: Machine) -> bytes:
    await agent.bench.run("UPDATE discovery_sites SET revoked_at = now()")
    return await agent.asserted(machine)


async def _expired_key(agent: SiteAgent, machine: Machine) -> bytes:
    await agent.bench.run("UPDATE discovery_sites SET expires_at = now()")
    return await agent.asserted(machine)


async def _another_site(agent: SiteAgent, machine: Machine) -> bytes:
    return await agent.asserted(machine, site="paris")


async def _another_csr(agent: SiteAgent, machine: Machine) -> bytes:
    del machine
    return await agent.asserted(agent.bench.machine())


async def _stale(agent: SiteAgent, machine: Machine) -> bytes:
    now: datetime = await agent.bench.one("SELECT watchword.now()")
    return await agent.asserted(machine, expires_at=now - timedelta(minutes=1, seconds=1))


async def _for_a_day(agent: SiteAgent, machine: Machine) -> bytes:
    now: datetime = await agent.bench.one("SELECT watchword.now()")
    return await agent.asserted(machine, expires_at=now + timedelta(days=1))


async def _until_the_end_of_time(agent: SiteAgent, machine: Machine) -> bytes:
    from datetime import UTC  # noqa: PLC0415 - here alone

    return await agent.asserted(machine, expires_at=datetime.max.replace(tzinfo=UTC))


async def _unread(agent: SiteAgent, machine: Machine) -> bytes:
    del machine
    return agent.key.sign(canonical({"version": 1}), "watchword-discovery")


@pytest.mark.parametrize(
    ("made", "reason", "tenant"),
    [
        (_unknown_key, "unknown-site", "root"),
        (_another_key, "bad-signature", "root"),
        (_another_type, "bad-signature", "root"),
        (_revoked_key, "site-revoked", "acme"),
        (_expired_key, "site-expired", "acme"),
        (_another_site, "other-site", "acme"),
        (_another_csr, "other-csr", "acme"),
        (_stale, "stale", "acme"),
        (_for_a_day, "too-long", "acme"),
        (_until_the_end_of_time, "too-long", "acme"),
        (_unread, "malformed", "acme"),
    ],
)
async def test_refusals_have_their_reasons(
    agent: SiteAgent, made: Change, reason: str, tenant: str
) -> None:
    """Each way in which an assertion can be wrong is told apart inside, and none admits."""
    machine = agent.bench.machine()
    payload = await made(agent, machine)
    request = machine.request(payload, attestor="discovery", role="ramdisk")
    [answer] = await agent.bench.ask(request)

    assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
    assert await last_reason(agent.bench) == f"discovery:{reason}"
    assert await agent.bench.one("SELECT tenant FROM refusals") == tenant
    assert await agent.bench.one("SELECT count(*) FROM join_requests") == 0
