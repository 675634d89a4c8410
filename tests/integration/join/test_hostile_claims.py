"""What a machine says of itself is stored for operators to read; it must not stop anybody."""

from typing import Any

import pytest

from tests.support.attestors.scripted import Scripted
from tests.support.joins import join_bench
from tests.support.scenarios import Order
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.schemas.ids import TenantId
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres


class Asks(Scripted):
    """Wants an operator's word for everybody."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Ask for it."""
        del evidence
        grant = Admission(tenant=TenantId("acme"), role=context.role, pool="web")
        return context.request_approval(context.csr_sha256, grant)


async def test_nul_in_a_claim_halves_no_batch(database: str) -> None:
    """PostgreSQL takes no NUL in JSON: any machine could make every batch be tried again in halves."""
    order = Order()
    async with join_bench(database, attestors=[Asks()], observer=order) as bench:
        await bench.place("acme", "web")
        token = await bench.token(uses=9)
        hostile = bench.machine().request(
            b"", attestor="scripted", claims=Claims(hostname="a\0b", serial="\\u0000 is fine")
        )
        good: list[Any] = [bench.machine().request(token.payload) for _ in range(4)]
        first, *others = await bench.ask(hostile, *good)
        assert [answer["outcome"] for answer in others] == ["joined"] * 4
        assert order.halvings == 0
        # It waits like any other; what operators read of it has no control characters.
        assert first["outcome"] == "deferred"
        hostname = await bench.one("SELECT claims ->> 'hostname' FROM join_requests")
        assert hostname.isprintable()


async def test_text_that_only_looks_like_a_nul_is_kept(database: str) -> None:
    """A backslash and five characters are no NUL."""
    async with join_bench(database, attestors=[Asks()]) as bench:
        await bench.place("acme", "web")
        claims = Claims(serial="\\u0000", hostname="tab\there")
        [answer] = await bench.ask(bench.machine().request(b"", attestor="scripted", claims=claims))
        assert answer["outcome"] == "deferred"
        assert await bench.one("SELECT claims ->> 'serial' FROM join_requests") == "\\u0000"
