"""The keeper, a gateway or the signer is killed."""

import signal

from tests.faults.faults.fault import Fault, Inject, Scale, until
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import KEEPER_LEASE_S, Deployment


def kill(role: str) -> Inject:
    """Kill one process of a role; it is started again."""

    async def inject(deployment: Deployment, scale: Scale) -> int:
        del scale
        child = deployment.rng.choice(deployment.fleet.of(role))
        await _kill(child)
        await deployment.fleet.await_ready([child])
        return 1

    return inject


async def kill_keeper(deployment: Deployment, scale: Scale) -> int:
    """Kill the keeper that has the lease; it stays away until another has it."""
    del scale
    keepers = deployment.fleet.of("keeper")

    async def owner() -> str:
        rows = await deployment.postgres.run(
            "SELECT owner FROM watchword.leases WHERE name NOT LIKE 'relay:%' AND expires_at > clock_timestamp()"
        )
        return str(rows[0][0]) if rows else ""

    async def somebody_has_it() -> bool:
        return bool(await owner())

    await until(somebody_has_it, "a keeper has the lease", within_s=5 * KEEPER_LEASE_S)
    before = await owner()
    child = next(keeper for keeper in keepers if before.startswith(keeper.name))
    child.is_held = True
    try:
        await _kill(child)

        async def another_has_it() -> bool:
            return await owner() not in ("", before)

        await until(another_has_it, "another keeper has the lease", within_s=5 * KEEPER_LEASE_S)
    finally:
        child.is_held = False
    await deployment.fleet.await_ready([child])
    return 1


async def _kill(child: Child) -> None:
    before = len(child.exits)
    child.send(signal.SIGKILL)

    async def has_ended() -> bool:
        return len(child.exits) > before

    await until(has_ended, f"{child.name} is killed", within_s=5.0, every_s=0.02)


FAULTS = (
    Fault("keeper killed", kill_keeper, frozenset(("keepers",))),
    Fault("gateway killed", kill("gateway"), frozenset(("gateways",))),
    Fault("signer killed", kill("signer"), frozenset(("signer",))),
)
