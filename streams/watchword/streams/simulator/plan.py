"""Which machines come when, and what is wrong with them: drawn from a seed, so that a run can be had again.

The keys are not drawn: those are real, and another run's are others.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from watchword.streams.simulator.options import FAULTS, Fault, Kind, Simulation

_REFUSED: frozenset[Fault] = frozenset(("forged", "moved"))
_ALL = 100.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One machine. `at_s` is when it comes, in seconds from the beginning."""

    number: int
    at_s: float
    kind: Kind
    fault: Fault | None
    renews: bool
    leaves: bool

    @property
    def may_join(self) -> bool:
        """Whether it has to be admitted, or else refused."""
        return self.fault not in _REFUSED


def planned(simulation: Simulation) -> Iterator[Planned]:
    """Yield the machines in the order in which they come, at times of a Poisson process."""
    rng = random.Random(simulation.seed)  # noqa: S311 - no secret is drawn
    kinds, shares = list(simulation.mix), list(simulation.mix.values())
    at_s = 0.0
    for number in range(simulation.nodes):
        at_s += rng.expovariate(simulation.per_second)
        kind = rng.choices(kinds, shares)[0]
        fault = _drawn(rng.uniform(0, _ALL), simulation)
        renews = rng.uniform(0, _ALL) < simulation.renew
        leaves = rng.uniform(0, _ALL) < simulation.leave
        stays = fault is None or fault == "duplicate"
        yield Planned(number, at_s, kind, fault, renews and stays, leaves and stays)


def _drawn(at: float, simulation: Simulation) -> Fault | None:
    for fault in FAULTS:
        at -= simulation.faults.get(fault, 0.0)
        if at < 0:
            return fault
    return None
