"""The simulation's own attestor holds to what every attestor has to hold to."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.attestor import Attestor
from watchword.handlers.testkit import AttestorConformance, ServiceUnderTest
from watchword.streams.simulator.attestor import POOL, TENANT, RestrictedAttestor, RestrictedProver

pytestmark = pytest.mark.postgres

KEY = Ed25519PrivateKey.generate()


class TestSimRestricted(AttestorConformance):
    """As a stranger would."""

    made = 0

    def attestor(self) -> Attestor:
        """Return the attestor."""
        return RestrictedAttestor(KEY.public_key())

    async def prepare(self, service: ServiceUnderTest) -> None:
        """Make the simulation's place."""
        await service.place(TENANT, POOL)

    async def prover(self, service: ServiceUnderTest) -> RestrictedProver:
        """Return another machine's."""
        del service
        self.made += 1
        return RestrictedProver(KEY, f"machine-{self.made}")
