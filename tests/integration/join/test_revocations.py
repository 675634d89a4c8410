"""What attestors lean on is taken back while a join is judged: whoever was revoked before the commit admits nobody."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.support.joins import join_bench
from tests.support.proving import last_reason
from tests.support.waiting import until_true
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.operators import bans, cloud_accounts, images, places, site_keys, tpms
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.cloud_accounts import CloudAccountOrder
from watchword.handlers.operators.grants import Grant
from watchword.handlers.operators.images import ImageOrder
from watchword.handlers.operators.site_keys import SiteKeyOrder
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import BAN_LOCK
from watchword.schemas.ids import ROLES, TenantId

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")
BOOT = {
    "pcrs": [0],
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {"0": ["00" * 32]}},
}
GRANT = Grant(tenant="acme", pool="web", site="berlin")
EK, KEY = b"e" * 32, b"k" * 32

refuse = refuser("leans")

Reads = Callable[[JoinContext, str], Awaitable[Any]]


@dataclass(frozen=True)
class Anchor:
    """Something that an operator writes down: how, how it is read, and how it is taken back."""

    made: Callable[[Database], Awaitable[str]]
    read: Reads
    revoked: Callable[[Database, str], Awaitable[Any]]


async def _image(database: Database) -> str:
    made = await images.create_image(database, ADA, ImageOrder(grant=GRANT))
    return str(made.row["id"])


async def _site_key(database: Database) -> str:
    order = SiteKeyOrder(tenant="acme", site="berlin", pool="web", public_key=KEY)
    return str((await site_keys.add_site_key(database, ADA, order))["kid"])


async def _account(database: Database) -> str:
    order = CloudAccountOrder(provider="aws", account="111", grant=GRANT)
    await cloud_accounts.add_cloud_account(database, ADA, order)
    return "111"


async def _tpm(database: Database) -> str:
    await tpms.enrol_tpms(database, ADA, {EK: ""}, GRANT)
    return ""


async def _policy(database: Database) -> str:
    await tpms.set_policy(database, ADA, "acme", "web", BOOT)
    return ""


ANCHORS = {
    "image": Anchor(
        _image,
        lambda context, name: context.anchors.image(name),
        lambda database, name: images.revoke_image(database, ADA, name),
    ),
    "site key": Anchor(
        _site_key,
        lambda context, name: context.anchors.discovery_site(name),
        lambda database, name: site_keys.revoke_site_key(database, ADA, name),
    ),
    "cloud account": Anchor(
        _account,
        lambda context, name: context.anchors.cloud_account("aws", name),
        lambda database, name: cloud_accounts.revoke_cloud_account(database, ADA, "aws", name),
    ),
    "tpm": Anchor(
        _tpm,
        lambda context, _: context.anchors.tpm_endorsement(EK),
        lambda database, _: tpms.revoke_tpm(database, ADA, EK),
    ),
    "policy changed": Anchor(
        _policy,
        lambda context, _: context.anchors.tpm_policy(TenantId("acme"), "web"),
        lambda database, _: tpms.set_policy(
            database, ADA, "acme", "web", {**BOOT, "values": {"sha256": {"0": ["11" * 32]}}}
        ),
    ),
    "policy deleted": Anchor(
        _policy,
        lambda context, _: context.anchors.tpm_policy(TenantId("acme"), "web"),
        lambda database, _: tpms.delete_policy(database, ADA, "acme", "web"),
    ),
}


class Leans:
    """Admits by what an operator wrote down, and has it taken back between the verdict and its settlement."""

    id = "leans"
    version = "1"
    roles = ROLES

    def __init__(self, anchor: Anchor) -> None:
        """Lean on this."""
        self.anchor = anchor
        self.name = ""
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None
        self.waits = False
        self.verdicts = 0

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit, or ask an operator; then let happen what happens."""
        del evidence
        self.verdicts += 1
        found = await self.anchor.read(context, self.name)
        if found is None or getattr(found, "revoked", False) or self._is_changed(found):
            reason = "revoked"
            raise refuse(reason, tenant_id=TenantId("acme"))
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        grant = Admission(TenantId("acme"), context.role, "web")
        return context.request_approval(bytes(32), grant) if self.waits else grant

    def _is_changed(self, found: Any) -> bool:  # noqa: ANN401 - any anchor
        return getattr(found, "policy", BOOT) != BOOT


@pytest_asyncio.fixture
async def operator(database: str) -> AsyncGenerator[Database]:
    """Give an operator's way to the database."""
    opened = Database(database, application_name="operator")
    # One test keeps a revocation waiting: on a busy machine for longer than an operator would.
    opened._settings["lock_timeout"] = "60000"
    await places.create_tenant(opened, ADA, "acme")
    await places.create_place(opened, ADA, "pool", "acme", "web")
    await places.create_place(opened, ADA, "site", "acme", "berlin")
    yield opened
    await opened.close()


@pytest.mark.parametrize("waits", [False, True], ids=["admits", "waits"])
@pytest.mark.parametrize("anchor", ANCHORS.values(), ids=ANCHORS.keys())
async def test_revocation_that_comes_while_evidence_is_judged_wins(
    database: str, operator: Database, anchor: Anchor, *, waits: bool
) -> None:
    """What was read without locks is read again under them: neither a node nor a waiting join comes of it."""
    attestor = Leans(anchor)
    attestor.name, attestor.waits = await anchor.made(operator), waits
    async with join_bench(database, attestors=[attestor]) as bench:
        token = await bench.token()
        attestor.meanwhile = lambda: anchor.revoked(operator, attestor.name)
        answer, other = await bench.ask(
            bench.machine().request(b"", attestor="leans"), bench.machine().request(token.payload)
        )

        assert answer["outcome"] == "refused"
        assert await last_reason(bench) == "leans:revoked"
        assert attestor.verdicts == 2
        assert await bench.one("SELECT count(*) FROM join_requests") == 0
        # Whoever does not lean on it is not judged again for it.
        assert other["outcome"] == "joined"
        assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_what_stays_as_it_was_is_judged_once(database: str, operator: Database) -> None:
    """Reading again costs a query for each kind and batch, and no second verdict."""
    attestor = Leans(ANCHORS["image"])
    attestor.name = await attestor.anchor.made(operator)
    async with join_bench(database, attestors=[attestor]) as bench:
        answers = await bench.ask(
            *[bench.machine().request(b"", attestor="leans") for _ in range(5)]
        )

        assert [answer["outcome"] for answer in answers] == ["joined"] * 5
        assert attestor.verdicts == 5


@pytest.mark.parametrize("anchor", ANCHORS.values(), ids=ANCHORS.keys())
async def test_revocation_waits_for_the_batches_that_run(
    database: str, operator: Database, anchor: Anchor
) -> None:
    """Whoever is told that it is revoked sees no node join by it afterwards: a batch that has read it commits first."""
    name = await anchor.made(operator)
    await _waits_for_a_batch(database, lambda: anchor.revoked(operator, name))


async def test_ban_waits_for_the_batches_that_run(database: str, operator: Database) -> None:
    """A join that had looked before the ban would slip past it, and stay."""
    await _waits_for_a_batch(database, lambda: bans.add_bans(operator, ADA, [Subject("ek", "e1")]))


async def _waits_for_a_batch(database: str, act: Callable[[], Awaitable[object]]) -> None:
    """Fail unless this waits while a batch holds the lock of bans, and ends after it."""
    async with join_bench(database) as bench:
        batch = await bench.other()
        try:
            await batch.execute(f"BEGIN; SELECT pg_advisory_xact_lock_shared({BAN_LOCK})")
            acting = asyncio.ensure_future(act())

            async def waits_or_is_done() -> bool:
                return acting.done() or await bench.advisory_waits() == 1

            await until_true(waits_or_is_done, "it waits")
            assert not acting.done()
            await batch.execute("COMMIT")
            await acting
        finally:
            await batch.close()
