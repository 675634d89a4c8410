"""Loads: a backlog that is worked off at full speed, and machines that come at a steady rate."""

import asyncio
import json
import os
import time
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from aiokafka import AIOKafkaProducer

from tests.benchmarks.accounting import MachineTimes, busy_s, family_cpu_s, running_s
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.floor import Floor
from tests.benchmarks.observer import Observer
from watchword.schemas.topics import JOIN_REQUESTS

WARM_UP = 1_000
"""Records at the head of a backlog that are not measured: statements are prepared meanwhile."""

_LOOK_S = 0.01
_SLICE_S = 0.25
_PATIENCE_S = 60.0


class Stalled(Exception):
    """Nothing has arrived for a minute."""


async def produce(servers: str, requests: Iterable[bytes]) -> None:
    """Write requests to `join.requests` as fast as it goes, each under the SHA-256 of its CSR."""
    producer = _producer(servers, linger_ms=5)
    await producer.start()
    try:
        sent = [
            await producer.send(JOIN_REQUESTS, value=request, key=_key(request))
            for request in requests
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def produce_steadily(
    servers: str, requests: Sequence[bytes], *, per_second: float
) -> dict[bytes, float]:
    """Write requests at a steady rate, whatever becomes of them (an open loop).

    Returns the monotonic time at which each was due, by its SHA-256: a producer that is late
    makes latencies longer, never shorter.
    """
    keys = [_key(request) for request in requests]
    digests = [sha256(request).digest() for request in requests]
    due: dict[bytes, float] = {}
    producer = _producer(servers, linger_ms=0)
    await producer.start()
    try:
        sent: list[asyncio.Future[object]] = []
        begin = time.monotonic() + 0.1
        for number, request in enumerate(requests):
            at = begin + number / per_second
            due[digests[number]] = at
            if (left := at - time.monotonic()) > 0:
                await asyncio.sleep(left)
            sent.append(await producer.send(JOIN_REQUESTS, value=request, key=keys[number]))
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return due


@dataclass(frozen=True, slots=True)
class Pace:
    """What a stretch of work took. CPU and floor are in microseconds for each record."""

    records: int
    seconds: float
    cpu_us: dict[str, float]
    """Of each process, and of `postgres`, `kafka`, `observer` and the benchmark itself (`driver`)."""
    sessions_us: dict[str, float]
    """What PostgreSQL's processes for our sessions took, by whose they are; part of `postgres`."""
    floor_us: float
    """The floor, measured while the work went on."""
    foreign: float
    """How many cores strangers took meanwhile, the hypervisor's other guests included."""

    @property
    def per_second(self) -> float:
        """Records in a second."""
        return self.records / self.seconds


async def measured(
    deployed: Deployment, observer: Observer, *, after: int, until: int, floor: Floor
) -> Pace:
    """Measure from the arrival of the `after`-th record to that of the `until`-th.

    Raises:
        Stalled: nothing arrived for a minute.
        Broken: a process of the deployment ended.
    """
    await arrived(deployed, observer, after)
    floors: list[float] = []
    owners = await deployed.sessions()
    first = _Sample.now(deployed, observer, owners)
    await arrived(deployed, observer, until, floor=floor, floors=floors)
    last = _Sample.now(deployed, observer, owners)
    records = last.count - first.count
    seconds = last.at - first.at
    ours = sum(last.cpu[name] - first.cpu[name] for name in first.cpu)
    busy = last.machine.busy_s - first.machine.busy_s
    steal = last.machine.steal_s - first.machine.steal_s
    return Pace(
        records=records,
        seconds=seconds,
        cpu_us={name: (last.cpu[name] - first.cpu[name]) / records * 1e6 for name in first.cpu},
        sessions_us={
            name: (last.sessions[name] - first.sessions[name]) / records * 1e6
            for name in first.sessions
        },
        floor_us=sum(floors) / len(floors) if floors else floor.measure(),
        foreign=max(0.0, busy - ours + steal) / seconds,
    )


async def arrived(
    deployed: Deployment,
    observer: Observer,
    count: int,
    *,
    floor: Floor | None = None,
    floors: list[float] | None = None,
) -> None:
    """Return when the observer has seen so many records, and measure the floor meanwhile.

    Raises:
        Stalled: nothing arrived for a minute.
        Broken: a process of the deployment ended.
    """
    seen, seen_at = observer.count, time.monotonic()
    next_slice = seen_at + _SLICE_S / 2
    while seen < count:
        await asyncio.sleep(_LOOK_S)
        deployed.check()
        now = time.monotonic()
        if observer.count > seen:
            seen, seen_at = observer.count, now
        elif now - seen_at > _PATIENCE_S:
            message = f"{seen} of {count} arrived, and nothing more for {_PATIENCE_S:.0f} s"
            raise Stalled(message)
        if floor is not None and floors is not None and now >= next_slice:
            floors.append(floor.slice())
            next_slice = now + _SLICE_S


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    count: int
    cpu: dict[str, float]
    sessions: dict[str, float]
    machine: MachineTimes

    @classmethod
    def now(cls, deployed: Deployment, observer: Observer, owners: Mapping[int, str]) -> "_Sample":
        count = observer.count
        own = os.times()
        cpu = {name: family_cpu_s(pid) for name, pid in deployed.pids().items()}
        cpu["observer"] = busy_s([observer.pid])
        cpu["driver"] = own.user + own.system
        sessions = dict.fromkeys(owners.values(), 0.0)
        for pid, name in owners.items():
            sessions[name] += running_s(pid)
        return cls(time.monotonic(), count, cpu, sessions, MachineTimes.now())


def _producer(servers: str, *, linger_ms: int) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        max_batch_size=256 * 1024 if linger_ms else 16 * 1024,
    )


def _key(request: bytes) -> bytes:
    return sha256(b64decode(json.loads(request)["csr"])).digest()
