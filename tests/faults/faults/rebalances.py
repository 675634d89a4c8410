"""The group is rebalanced, again and again, by members that come and go and do no work."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer

from tests.faults.faults.fault import Fault, NotHit, Scale
from tests.faults.judge.topics import REQUESTS
from tests.faults.processes.deployment import GROUP, Deployment
from watchword.streams.kafka_closing import close

_JOIN_S = 20.0
_TWICE_WITHIN_S = 1.0


class Visitor:
    """A member of the workers' group that reads nothing and commits nothing."""

    def __init__(self, deployment: Deployment) -> None:
        """Join with `enter`."""
        self._consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=deployment.kafka.bootstrap_servers,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )

    async def enter(self) -> bool:
        """Join; return whether it was given partitions in time."""
        await self._consumer.start()
        self._consumer.subscribe([REQUESTS])
        deadline = time.monotonic() + _JOIN_S
        while time.monotonic() < deadline:
            if self._consumer.assignment():
                self._consumer.pause(*self._consumer.assignment())
                return True
            await asyncio.sleep(0.02)
        return False

    async def leave(self) -> None:
        """Leave the group, which is another rebalance."""
        await close(self._consumer, patience_s=_JOIN_S)


async def now_and_then(deployment: Deployment, scale: Scale) -> int:
    """Rebalance every three seconds for a minute, or for half of it where there is little time."""
    hits = 0
    deadline = time.monotonic() + scale.seconds(60.0, least=15.0)
    while time.monotonic() < deadline:
        visitor = Visitor(deployment)
        try:
            next_at = time.monotonic() + 3.0
            hits += await visitor.enter()
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            next_at += 3.0
        finally:
            await visitor.leave()
        hits += 1
        await asyncio.sleep(max(0.0, next_at - time.monotonic()))
    return hits


async def twice_in_a_second(deployment: Deployment, scale: Scale) -> int:
    """Have the group change twice within a second, many times: workers must not skip what was due."""
    hits = 0
    deadline = time.monotonic() + scale.seconds(60.0, least=20.0)
    while time.monotonic() < deadline:
        first, second = Visitor(deployment), Visitor(deployment)
        try:
            if not await first.enter():
                continue
            changed_at = time.monotonic()
            entering = asyncio.create_task(second.enter())
            await asyncio.sleep(deployment.rng.uniform(0.05, 0.6))
            await first.leave()
            hits += time.monotonic() - changed_at < _TWICE_WITHIN_S
            await entering
        finally:
            await first.leave()
            await second.leave()
        await asyncio.sleep(deployment.rng.uniform(0.1, 1.0))
    if not hits:
        message = "the group never changed twice within a second"
        raise NotHit(message)
    return hits


_GROUP = frozenset(("group", "workers"))

FAULTS = (
    Fault("rebalanced every 3 s", now_and_then, _GROUP),
    # An hour has three hundred of them alone: about twenty-three each time.
    Fault("rebalanced twice in a second", twice_in_a_second, _GROUP, times=7),
)
