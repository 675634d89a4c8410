"""Workers are killed at a point, ended in good order, paused, or have clocks that are wrong."""

import asyncio
import signal

from tests.faults.faults.fault import Fault, Inject, NotHit, Scale, until
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import GROUP, Deployment

_SESSION_S = 6.0
_HIT_S = 30.0
_WRONG_BY_S = 3660
"""A little over an hour: Kafka refuses records that are stamped more than an hour ahead."""


def _one(deployment: Deployment) -> Child:
    return deployment.rng.choice(deployment.fleet.of("worker"))


def kill_at(point: str, *, away_s: float = 0.0) -> Inject:
    """Kill a worker at a point of its batch; it comes back at once, or only after its session."""

    async def inject(deployment: Deployment, scale: Scale) -> int:
        del scale
        worker = _one(deployment)
        ends = len(worker.exits)
        worker.is_held = away_s > 0
        worker.arm(point)

        async def was_hit() -> bool:
            return worker.was_hit(point) and len(worker.exits) > ends

        try:
            await until(was_hit, f"{worker.name} at {point}", within_s=_HIT_S)
            await asyncio.sleep(away_s)
        finally:
            worker.disarm(point)
            worker.is_held = False
        await deployment.fleet.await_ready([worker])
        return 1

    return inject


async def terminate(deployment: Deployment, scale: Scale) -> int:
    """End a worker in good order: it must drain, and say so by its exit status."""
    del scale
    worker = _one(deployment)
    before = len(worker.exits)
    worker.send(signal.SIGTERM)

    async def has_ended() -> bool:
        return len(worker.exits) > before

    await until(has_ended, f"{worker.name} drained", within_s=12.0)
    if worker.exits[-1].status != 0:
        message = f"{worker.name} exited with {worker.exits[-1].status} on SIGTERM"
        raise NotHit(message)
    await deployment.fleet.await_ready([worker])
    return 1


async def pause(deployment: Deployment, scale: Scale) -> int:
    """Pause a worker until the group has given its partitions to others; then let it go on."""
    del scale
    worker = _one(deployment)
    worker.send(signal.SIGSTOP)
    try:
        await _until_moved(deployment, worker)
    finally:
        worker.send(signal.SIGCONT)
    await deployment.fleet.await_ready([worker])
    return 1


def zombie(point: str) -> Inject:
    """Pause a worker in the middle of a batch, at a point, until others have its partitions."""

    async def inject(deployment: Deployment, scale: Scale) -> int:
        del scale
        worker = _one(deployment)
        worker.arm(point, "stop")

        async def was_hit() -> bool:
            return worker.was_hit(point)

        try:
            await until(was_hit, f"{worker.name} at {point}", within_s=_HIT_S)
            await _until_moved(deployment, worker)
        finally:
            worker.disarm(point)
            worker.send(signal.SIGCONT)
        await deployment.fleet.await_ready([worker])
        return 1

    return inject


async def _until_moved(deployment: Deployment, worker: Child) -> None:
    async def has_moved() -> bool:
        members = await deployment.kafka.group_members(GROUP)
        return bool(members) and not any(name.startswith(worker.name) for name in members)

    await until(
        has_moved, f"others have what {worker.name} had", within_s=4 * _SESSION_S, every_s=0.5
    )


async def wrong_clocks(deployment: Deployment, scale: Scale) -> int:
    """Run two workers an hour ahead and an hour behind; they must judge as all others do."""
    ahead, behind = deployment.rng.sample(deployment.fleet.of("worker"), 2)
    try:
        for worker, shift_s in ((ahead, _WRONG_BY_S), (behind, -_WRONG_BY_S)):
            worker.extra["FAULTS_CLOCK_SHIFT_S"] = str(shift_s)
            # Kafka's client stamps records in C otherwise, past every replacement of a clock.
            worker.extra["AIOKAFKA_NO_EXTENSIONS"] = "1"
            worker.send(signal.SIGTERM)
        for worker in (ahead, behind):
            await until(
                lambda worker=worker: _has_answered(deployment, worker),  # type: ignore[misc] # bound now
                f"{worker.name} answers with a wrong clock",
                within_s=45.0,
                every_s=0.5,
            )
        await asyncio.sleep(scale.seconds(15.0, least=4.0))
    finally:
        for worker in (ahead, behind):
            worker.extra.pop("FAULTS_CLOCK_SHIFT_S", None)
            worker.extra.pop("AIOKAFKA_NO_EXTENSIONS", None)
            worker.send(signal.SIGTERM)
        await asyncio.sleep(0.5)
    await deployment.fleet.await_ready([ahead, behind])
    return 2


async def _has_answered(deployment: Deployment, worker: Child) -> bool:
    fleet = deployment.fleet
    sent = await asyncio.to_thread(fleet.metric, worker, "watchword_worker_records_sent_total")
    return sent > 0


_WORKERS = frozenset(("workers",))

FAULTS = (
    Fault("worker killed before commit", kill_at("before-commit"), _WORKERS, "6.2 s"),
    Fault(
        "worker killed after commit",
        kill_at("after-commit-before-response", away_s=8.0),
        _WORKERS,
        "6.2 s",
    ),
    Fault(
        "worker killed after response", kill_at("after-response-before-offset"), _WORKERS, "6.2 s"
    ),
    Fault("worker terminated", terminate, _WORKERS, "0.8 s"),
    Fault("worker paused", pause, _WORKERS, "8.0 s"),
    Fault("worker paused before commit", zombie("before-commit"), _WORKERS),
    Fault("worker paused before response", zombie("after-commit-before-response"), _WORKERS),
    Fault("worker clocks an hour off", wrong_clocks, _WORKERS),
)
