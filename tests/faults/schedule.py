"""When which fault comes: each alone, then in pairs, drawn by the seed."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

from tests.faults.faults.all import LAST
from tests.faults.faults.fault import Fault, Injection, NotHit, Scale
from tests.faults.processes.deployment import Deployment

_CALM_BELOW_S = 1.5
_BETWEEN_S = 1.0
_TRIES = 2

Say = Callable[[str], None]


class Schedule:
    """Injects faults into a deployment and writes down when, and whether they were hit."""

    def __init__(
        self,
        deployment: Deployment,
        rng: random.Random,
        scale: Scale,
        say: Say,
        *,
        calm_s: float,
    ) -> None:
        """Inject nothing yet; wait at most `calm_s` until a fault's backlog is worked off."""
        self._calm_s = calm_s
        self._deployment = deployment
        self._rng = rng
        self._scale = scale
        self.say = say
        self.injections: list[Injection] = []
        self.impossible: dict[str, str] = {}

    async def alone(self, faults: Iterable[Fault]) -> None:
        """Inject each of these, one after the other, in the seed's order."""
        unhurried = self._scale.share >= 1.0
        order = [fault for fault in faults for _ in range(fault.times if unhurried else 1)]
        self._rng.shuffle(order)
        order.sort(key=lambda fault: fault.name in LAST)
        for fault in order:
            for _ in range(_TRIES):
                injection = await self._inject(fault)
                if injection is None or injection.hits:
                    break
            await self._calm()

    async def pairs(self, faults: Sequence[Fault], until: float) -> None:
        """Inject pairs that have nothing in common until this time on the monotonic clock."""
        possible = [
            pair for pair in permutations(faults, 2) if not pair[0].touches & pair[1].touches
        ]
        while possible and time.monotonic() < until:
            one, other = self._rng.choice(possible)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._inject(one, other.name))
                both.create_task(self._inject(other, one.name, after_s=self._rng.uniform(0.0, 2.0)))
            await self._calm()

    async def _inject(
        self, fault: Fault, together_with: str | None = None, *, after_s: float = 0.0
    ) -> Injection | None:
        await asyncio.sleep(after_s)
        if (why := fault.impossible(self._deployment)) is not None:
            self.impossible[fault.name] = why
            return None
        injection = Injection(fault.name, together_with)
        self.injections.append(injection)
        self.say(f"{fault.name}" + (f", with {together_with}" if together_with else ""))
        try:
            async with asyncio.timeout(fault.longest_s):
                injection.hits = await fault.inject(self._deployment, self._scale)
        except NotHit as error:
            injection.problem = str(error)
        except Exception as error:  # noqa: BLE001 - a broken fault is a row of the table, not the end of the run
            injection.problem = f"{type(error).__name__}: {error}"
        injection.end()
        took = injection.ended - injection.began
        self.say(
            f"{fault.name}: {injection.hits} hits in {took:.1f} s"
            + (f"; {injection.problem}" if injection.problem else "")
        )
        return injection

    async def _calm(self) -> None:
        """Wait until requests are answered as fast as ever."""
        await asyncio.sleep(_BETWEEN_S)
        deadline = time.monotonic() + self._calm_s
        while True:
            count, oldest_s = self._deployment.ledger.waiting(time.monotonic())
            if not count or oldest_s < _CALM_BELOW_S:
                return
            if time.monotonic() >= deadline:
                self.say(f"still not calm: {count} wait, the oldest for {oldest_s:.1f} s")
                return
            await asyncio.sleep(0.2)
