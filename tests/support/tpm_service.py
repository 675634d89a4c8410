"""A service that TPMs join at: the pool, what a boot has to look like there, and chips that an operator enrolled."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from tests.support.joins import Bench, join_bench
from tests.support.tpm import Maker, SoftProver, SoftTpm, enrol, set_policy
from watchword.handlers.attestors.tpm.certificates import read_certificate
from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.verifier import TpmAttestor

PCRS = [0, 1, 2, 3, 4, 7]
VALUE = "11" * 32
POLICY: dict[str, Any] = {
    "pcrs": PCRS,
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {str(n): [VALUE] for n in PCRS}},
}
NODES = "SELECT to_jsonb(n)::text FROM nodes n ORDER BY id"
"""Every node, with all that is written of it."""


@contextlib.asynccontextmanager
async def tpm_service(
    database: str, maker: Maker, room: WaitingRoom | None = None
) -> AsyncGenerator[Bench]:
    """Give a service that trusts this vendor; where there is no waiting room, only enrolled TPMs get in."""
    attestor = TpmAttestor(Config(Anchors.of([read_certificate(maker.root)]), room))
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web")
        await set_policy(bench, POLICY)
        yield bench


async def enrolled(bench: Bench, tpm: SoftTpm | None = None) -> SoftProver:
    """Enrol a TPM, and return the prover of its machine."""
    tpm = tpm or SoftTpm()
    await enrol(bench, tpm)
    return SoftProver(tpm)
