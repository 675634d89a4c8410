"""acme-rack holds to the contract, and to what is its own."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pytest
from acme_rack.prover import RackProver
from acme_rack.verifier import CHALLENGE_LIFE, AcmeRack

from watchword.handlers.attestor import Attestor, Role
from watchword.handlers.testkit import AttestorConformance, ServiceUnderTest, run_agent_join

RELEASE = "UPDATE plg_acme_rack__releases SET released_by = 'kim'"


async def install(service: ServiceUnderTest, prover: RackProver) -> None:
    """Put a machine into the rack; nobody has released it yet."""
    await service.fetch(
        "INSERT INTO plg_acme_rack__machines VALUES ($1, $2, 'acme', 'web')",
        prover.serial,
        prover.key.public_key().public_bytes_raw(),
    )


class TestAcmeRack(AttestorConformance):
    """What every attestor has to hold to: of machines that a technician has released."""

    rounds: ClassVar[int] = 2
    good_for: ClassVar[timedelta | None] = CHALLENGE_LIFE
    made = 0

    def attestor(self) -> Attestor:
        return AcmeRack()

    async def prover(self, service: ServiceUnderTest) -> RackProver:
        self.made += 1
        prover = RackProver(f"R17-{self.made:04}")
        await install(service, prover)
        await service.fetch(
            "INSERT INTO plg_acme_rack__releases VALUES ($1, watchword.now(), 'kim')",
            prover.serial,
        )
        return prover


@pytest.fixture
def attestors() -> list[Attestor]:
    return [AcmeRack()]


@dataclass
class Waiting(RackProver):
    """Has the technician come after its first proof."""

    service: ServiceUnderTest | None = None
    proofs: int = 0

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Prove the key; from the second time on a technician has been there."""
        if self.proofs == 1 and self.service is not None:
            [(waiting,)] = await self.service.fetch(
                "SELECT serial FROM plg_acme_rack__releases WHERE released_by IS NULL"
            )
            assert waiting == self.serial
            await self.service.execute(RELEASE)
        self.proofs += 1
        return await super().answer(challenge, csr_sha256, role)


@pytest.mark.asyncio
async def test_machine_waits_for_a_technician(join_service: ServiceUnderTest) -> None:
    """Proving the key is not enough; that it waits is in the table before anybody has said yes."""
    await join_service.place("acme", "web")
    prover = Waiting("R17-0001", service=join_service)
    await install(join_service, prover)
    joined = await run_agent_join(join_service, prover)
    assert joined.outcome == "joined"
    assert len(joined.rounds) == 3


@pytest.mark.asyncio
async def test_stranger_writes_no_row_for_the_technician(join_service: ServiceUnderTest) -> None:
    """Whoever knows a serial number could fill the table."""
    await join_service.place("acme", "web")
    await install(join_service, RackProver("R17-0001"))
    refused = await run_agent_join(join_service, RackProver("R17-0001"))
    assert [r.reason for r in refused.refusals] == ["bad-signature"]
    assert await join_service.fetch("SELECT * FROM plg_acme_rack__releases") == []
