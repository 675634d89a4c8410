"""What came between the first look at a request and its locks is explained as it was met."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from tests.support.explaining import Asked, disagreements, explain_all, explainer
from tests.support.joins import Bench, join_bench, keys
from tests.support.renewals import joined, reasons
from tests.support.waiting import until_true
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import ban_nodes
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.connection import Connection, Database

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")


class Interrupted:
    """A signer before whose next answer something happens."""

    def __init__(self, signer: Signer) -> None:
        """Take the signer."""
        self._signer = signer
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """See `Signer.issue`."""
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        return await self._signer.issue(orders)

    async def chain(self) -> tuple[bytes, ...]:
        """See `Signer.chain`."""
        return await self._signer.chain()


async def _world_of_the_refusal(bench: Bench, crypto: JoinCrypto, asked: Asked) -> str:
    """Return in which world the second request was refused for a ban; both are explained as they are recorded."""
    found = await explain_all(bench, explainer(crypto), asked.incoming.values())
    assert await reasons(bench) == ["join:banned"]
    assert disagreements(found) == []
    # A draft is held against what is in force in the same world, and not in one after the other.
    again = await explain_all(bench, explainer(crypto), asked.incoming.values(), like=found)
    assert [(one.verdict, one.judged) for one in again] == [
        (one.verdict, one.judged) for one in found
    ]
    return str(found[1].judged["world"])


async def test_a_ban_between_the_first_look_and_the_locks(database: str) -> None:
    """It was read as an active node's and refused for a ban: judged at one moment it is the one or the other."""
    crypto, asked, made = keys(), Asked(), list[Interrupted]()

    def interrupted(signer: Signer) -> Signer:
        made.append(Interrupted(signer))
        return made[0]

    store = Database(database, application_name="test")
    async with join_bench(database, crypto=crypto, observer=asked, signer=interrupted) as bench:
        node = await joined(bench)
        made[0].meanwhile = lambda: ban_nodes(store, ADA, [SeenNode(UUID(node.id))])
        await bench.ask(node.renewal(bench.machine()))
        world = await _world_of_the_refusal(bench, crypto[0], asked)
    await store.close()

    assert "and decided" in world


class Held(Database):
    """A database whose commits wait for a word."""

    def __init__(self, dsn: str) -> None:
        """Hold what commits."""
        super().__init__(dsn, application_name="held")
        self.is_written, self.may_commit = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def transaction(self, *, isolation: str | None = None) -> AsyncGenerator[Connection]:
        """See `Database.transaction`."""
        async with super().transaction(isolation=isolation) as connection:
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield connection
            self.is_written.set()
            await self.may_commit.wait()


async def test_a_ban_that_had_not_committed_when_the_attempt_began(database: str) -> None:
    """By its time it was there before; but whoever looked did not see it, as when PostgreSQL stands still in a COMMIT."""
    crypto, asked, store = keys(), Asked(), Held(database)
    async with join_bench(database, crypto=crypto, observer=asked) as bench:
        node = await joined(bench)
        banning = asyncio.create_task(ban_nodes(store, ADA, [SeenNode(UUID(node.id))]))
        await store.is_written.wait()
        asking = asyncio.create_task(bench.ask(node.renewal(bench.machine())))

        async def waits() -> bool:
            return await bench.advisory_waits() > 0

        await until_true(waits, "the settlement waits for the ban")
        store.may_commit.set()
        await asyncio.gather(banning, asking)
        world = await _world_of_the_refusal(bench, crypto[0], asked)
    await store.close()

    assert "had committed" in world
