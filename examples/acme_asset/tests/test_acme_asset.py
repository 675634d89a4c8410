"""acme-asset holds to the contract, and to what is its own."""

from typing import ClassVar

import pytest
from acme_asset.prover import AssetProver
from acme_asset.verifier import attestor
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.attestor import Attestor, Role
from watchword.handlers.testkit import AttestorConformance, ServiceUnderTest, run_agent_join

VENDOR = Ed25519PrivateKey.generate()


async def stock(service: ServiceUnderTest) -> None:
    """Put a vendor into the tables, and a place for machines."""
    await service.place("acme", "web")
    await service.fetch(
        "INSERT INTO plg_acme_asset__vendors VALUES ('initech', $1)",
        VENDOR.public_key().public_bytes_raw(),
    )


async def buy(service: ServiceUnderTest, pool: str = "web") -> str:
    """Put another tag into the asset database."""
    [(count,)] = await service.fetch("SELECT count(*) FROM plg_acme_asset__tags")
    tag = f"ACME-{count:06}"
    await service.fetch("INSERT INTO plg_acme_asset__tags VALUES ($1, 'acme', $2)", tag, pool)
    return tag


class TestAcmeAsset(AttestorConformance):
    """What every attestor has to hold to."""

    role: ClassVar[Role] = "node"
    other_role: ClassVar[Role] = "site"

    def attestor(self) -> Attestor:
        return attestor

    async def prepare(self, service: ServiceUnderTest) -> None:
        await stock(service)

    async def prover(self, service: ServiceUnderTest) -> AssetProver:
        return AssetProver("initech", VENDOR, await buy(service))


@pytest.fixture
def attestors() -> list[Attestor]:
    return [attestor]


@pytest.mark.asyncio
async def test_tag_says_the_place(join_service: ServiceUnderTest) -> None:
    """The asset database decides where a machine belongs, not the machine."""
    await stock(join_service)
    await join_service.place("acme", "gpu")
    tag = await buy(join_service, "gpu")
    joined = await run_agent_join(join_service, AssetProver("initech", VENDOR, tag))
    assert joined.answer.joined is not None
    assert (joined.answer.joined.tenant, joined.answer.joined.pool) == ("acme", "gpu")
    assert joined.answer.joined.allowed_kinds == ("inventory.refresh", "logs.collect")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "reason", "tenant"),
    [
        ("UPDATE plg_acme_asset__tags SET retired = true", "retired", "acme"),
        ("DELETE FROM plg_acme_asset__tags", "unknown-tag", "root"),
        ("DELETE FROM plg_acme_asset__vendors", "unknown-vendor", "root"),
    ],
)
async def test_what_is_not_in_service_is_refused(
    join_service: ServiceUnderTest, change: str, reason: str, tenant: str
) -> None:
    """And the tenant hears of it only if its own asset was proven."""
    await stock(join_service)
    prover = AssetProver("initech", VENDOR, await buy(join_service))
    await join_service.execute(change)
    refused = await run_agent_join(join_service, prover)
    assert refused.outcome == "refused"
    assert [(r.attestor, r.reason, r.tenant) for r in refused.refusals] == [
        ("acme-asset", reason, tenant)
    ]
