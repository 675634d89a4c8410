"""The last release beside this one: on the new schema, under load, there and back."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress

from tests.faults.faults.fault import Fault, NotHit, Scale, until
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import Deployment
from tests.support import last_release

_ROLES = ("signer", "worker", "relay", "keeper", "gateway")
_DRAINED_S = 30.0
_AT_WORK_S = 45.0


async def beside(deployment: Deployment, scale: Scale) -> int:
    """Run one process of each role from the last release for a while, then from this one again.

    They change places one after the other, as in a rolling upgrade; so each new one meets the old others.
    """
    if deployment.last_release is None:
        folder = deployment.folder / "last-release"
        folder.mkdir(exist_ok=True)
        deployment.last_release = await asyncio.to_thread(last_release.unpacked, folder)
    chosen = [deployment.rng.choice(deployment.fleet.of(role)) for role in _ROLES]
    try:
        for child in chosen:
            child.source = deployment.last_release
            await _replaced(deployment, child)
        worker = next(child for child in chosen if child.role == "worker")

        async def has_answered() -> bool:
            name = "watchword_worker_records_sent_total"
            return await asyncio.to_thread(deployment.fleet.metric, worker, name) > 0

        await until(has_answered, f"{worker.name} of the last release answers", within_s=_AT_WORK_S)
        await asyncio.sleep(scale.seconds(20.0, least=5.0))
        _check(chosen, deployment.last_release)
    except BaseException as error:
        # Whoever is of the last release by now must not stay it for the rest of the run; and who is only just
        # starting, with no handler of signals yet, is not to be asked to drain by whatever comes next.
        for child in chosen:
            child.source = None
            child.send(signal.SIGTERM)
        if not isinstance(error, asyncio.CancelledError):
            with suppress(TimeoutError):
                await deployment.fleet.await_ready(chosen)
        raise
    for child in chosen:
        child.source = None
        await _replaced(deployment, child)
    return len(chosen)


async def _replaced(deployment: Deployment, child: Child) -> None:
    """End a process in good order, and return when the one that takes its place is ready."""
    before = len(child.exits)
    child.send(signal.SIGTERM)

    async def has_ended() -> bool:
        return len(child.exits) > before

    await until(has_ended, f"{child.name} drained", within_s=_DRAINED_S)
    if child.exits[-1].status != 0:
        message = f"{child.name} exited with {child.exits[-1].status} on SIGTERM"
        raise NotHit(message)
    await deployment.fleet.await_ready([child])


def _check(chosen: Sequence[Child], source: str | None) -> None:
    """See that it is the last release that runs; raises `NotHit`."""
    for child in chosen:
        if source is None or not child.runs(source):
            message = f"{child.name} is not of the last release"
            raise NotHit(message)


def _not_here(_: Deployment) -> str | None:
    return None if last_release.is_here() else "the last release is not in this clone"


_TOUCHED = frozenset(("workers", "group", "relays", "keepers", "gateways", "signer"))

FAULTS = (Fault("last release beside this one", beside, _TOUCHED, impossible=_not_here),)
