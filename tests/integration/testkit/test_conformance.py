"""The conformance suite passes what is right, and finds every fault that was planted."""

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.attestors.badge import FAULTS, LIFE, Badge, BadgeProver
from watchword.handlers.attestor import Attestor
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.prover import Prover
from watchword.handlers.testkit import AttestorConformance, ServiceUnderTest, service_on
from watchword.handlers.testkit.databases import TestDatabases

pytestmark = pytest.mark.postgres


class Badges(AttestorConformance):
    """The suite of a badge, with a fault or without."""

    good_for: ClassVar[timedelta | None] = LIFE

    @cached_property
    def issuer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.generate()

    @cached_property
    def badge(self) -> Badge:
        return Badge(self.issuer, rounds=self.rounds)

    def attestor(self) -> Attestor:
        return self.badge

    async def prepare(self, service: ServiceUnderTest) -> None:
        await super().prepare(service)
        self.badge.dsn = service.dsn
        await service.execute("CREATE TABLE IF NOT EXISTS plg_badge__seen (at timestamptz)")

    async def prover(self, service: ServiceUnderTest) -> Prover:
        del service
        return BadgeProver(
            self.issuer, lambda: datetime.now(UTC), rounds=self.rounds, fault=self.badge.fault
        )


class TestBadge(Badges):
    """What is right passes in one round."""


class TestBadgeInRounds(Badges):
    """And in two."""

    rounds: ClassVar[int] = 2


class TestJoinToken(AttestorConformance):
    """Our own root of trust holds to what we ask of others: a bearer secret that is used up."""

    is_bound_to_csr: ClassVar[bool] = False

    def attestor(self) -> Attestor:
        return JoinTokenAttestor()

    async def prover(self, service: ServiceUnderTest) -> Prover:
        return JoinTokenProver.of_text((await service.token()).text)


class InRounds(Badges):
    """For faults that only show in rounds."""

    rounds: ClassVar[int] = 2


FOUND_BY: dict[str, tuple[type[Badges], str]] = {
    "another-csr": (Badges, "test_evidence_of_another_csr_is_refused"),
    "no-signature": (Badges, "test_changed_evidence_is_refused"),
    "undeclared-reason": (Badges, "test_changed_evidence_is_refused"),
    "raises": (Badges, "test_strangers_bytes_are_refused"),
    "returns-nothing": (Badges, "test_strangers_bytes_are_refused"),
    "tenant-too-early": (Badges, "test_changed_evidence_is_refused"),
    "no-role": (Badges, "test_evidence_serves_one_role"),
    "no-binding": (Badges, "test_race_for_one_machine_has_one_winner"),
    "memory": (Badges, "test_verifying_twice_is_verifying_once"),
    "own-connection": (Badges, "test_refusal_writes_nothing"),
    "never-ends": (Badges, "test_old_evidence_is_refused"),
    "trailing-bytes": (Badges, "test_changed_evidence_is_refused"),
    "no-state": (InRounds, "test_rounds_hold_in_their_order_only"),
    "broken-seal": (InRounds, "test_rounds_hold_in_their_order_only"),
    "spends-with-challenge": (InRounds, "test_good_evidence_is_admitted"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_planted_fault_is_found(fault: str, watchword_databases: TestDatabases) -> None:
    """A suite that finds nothing in what is wrong says nothing about what is right."""
    kind, check = FOUND_BY[fault]
    suite = kind()
    suite.badge.fault = fault
    async with (
        watchword_databases.fresh() as dsn,
        service_on(dsn, [suite.attestor()]) as service,
    ):
        with pytest.raises(AssertionError) as caught:
            await getattr(suite, check)(service)
    assert str(caught.value).strip(), "a finding says what was found"
