"""A machine that asks twice with one CSR, and is judged twice at a time."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest

from tests.support.joins import join_bench, keys
from tests.support.renewals import joined, reasons
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Role,
    TenantId,
    refuser,
)
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import ban_nodes
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.rows import Renewable
from watchword.handlers.store.connection import Database
from watchword.handlers.store.join_reads import ReadingConnection
from watchword.schemas.reasons import Reason

pytestmark = pytest.mark.postgres

_TAKEN = refuser("overtaken")("taken")
_SUBJECT = bytes(32)


@dataclass
class Overtaken:
    """Admits, unless it is overtaken while it reads: then it says what `late` says, of names that are taken by then."""

    late: str
    act: Callable[[], Awaitable[None]] | None = None
    id: str = "overtaken"
    version: str = "1"
    roles: frozenset[Role] = frozenset(("node",))
    reasons: tuple[Reason, ...] = (Reason("taken", "OV0001", "low", "Somebody has the names."),)

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        del evidence
        grant = Admission(TenantId("acme"), "node", "web", bind=_SUBJECT)
        act, self.act = self.act, None
        if act is not None:
            await act()
            assert await context.bindings.get(_SUBJECT) is not None
            if self.late == "refuses":
                raise _TAKEN
            return context.request_approval(_SUBJECT, grant, {})
        return grant


@pytest.mark.parametrize("late", ["refuses", "waits"])
async def test_who_is_overtaken_by_its_own_admission_hears_of_that(
    database: str, late: str
) -> None:
    """What it has read is its own doing: a machine that retried would be refused for ever, or wait, beside its certificate."""
    crypto, slow = keys(), Overtaken(late)
    async with (
        join_bench(database, attestors=[slow], crypto=crypto) as first,
        join_bench(database, attestors=[Overtaken(late)], crypto=crypto, worker="w1") as second,
    ):
        await first.place("acme", "web")
        machine = first.machine()
        quick, retried = (machine.request(b"", attestor="overtaken") for _ in range(2))

        async def overtake() -> None:
            [answer] = await second.ask(quick)
            assert answer["outcome"] == "joined"

        slow.act = overtake
        [answer] = await first.ask(retried)

        assert answer["outcome"] == "joined"
        assert await first.one("SELECT count(*) FROM node_certs") == 1
        assert await first.one("SELECT count(*) FROM refusals") == 0
        assert await first.one("SELECT count(*) FROM join_requests") == 0


@pytest.mark.parametrize("is_banned", [False, True], ids=["nothing else", "and banned"])
async def test_who_is_overtaken_by_its_own_renewal_hears_of_that(
    database: str, monkeypatch: pytest.MonkeyPatch, *, is_banned: bool
) -> None:
    """Its certificate is not the current one any more, and that is its own doing: no refusal that a SIEM would hear of."""
    crypto, store = keys(), Database(database, application_name="test")
    async with (
        join_bench(database, crypto=crypto) as first,
        join_bench(database, crypto=crypto, worker="w1") as second,
    ):
        node, machine = await joined(first), first.machine()
        quick, retried = (node.renewal(machine) for _ in range(2))
        read, others = ReadingConnection.renewables, [quick]

        async def overtaken(
            session: ReadingConnection, tbs: Sequence[bytes]
        ) -> Mapping[bytes, Renewable]:
            if not others:  # whoever overtakes reads certificates as well
                return await read(session, tbs)
            [answer] = await second.ask(others.pop())
            assert answer["outcome"] == "joined"
            found = await read(session, tbs)
            assert not found[node.tbs_sha256].certificate.is_current
            if is_banned:
                await ban_nodes(store, Actor("ada", "a test"), [SeenNode(UUID(node.id))])
            return found

        monkeypatch.setattr(ReadingConnection, "renewables", overtaken)
        [answer] = await first.ask(retried)

        assert answer["outcome"] == ("refused" if is_banned else "joined")
        assert await first.one("SELECT count(*) FROM node_certs") == 2
        assert await reasons(first) == (["join:csr-reused"] if is_banned else [])
    await store.close()
