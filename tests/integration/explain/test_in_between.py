"""What came between the first look at a request and its locks is explained as it was met."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from tests.support.explaining import Asked, disagreements, explain_all, explainer
from tests.support.joins import join_bench, keys
from tests.support.renewals import joined, reasons
from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import ban_nodes
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.connection import Database

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
        found = await explain_all(bench, explainer(crypto[0]), asked.incoming.values())
        refused = await reasons(bench)
    await store.close()

    assert refused == ["join:banned"]
    assert disagreements(found) == []
    assert "and decided" in str(found[1].judged["world"])
