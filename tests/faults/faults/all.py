"""Every fault there is."""

from tests.faults.faults import (
    floods,
    kafka,
    others,
    postgres,
    rebalances,
    relays,
    upgrades,
    workers,
)
from tests.faults.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *workers.FAULTS,
    *relays.FAULTS,
    *others.FAULTS,
    *postgres.FAULTS,
    *kafka.FAULTS,
    *rebalances.FAULTS,
    *floods.FAULTS,
    *upgrades.FAULTS,
)

LAST = ("fail-over to the standby",)
"""What comes after the others: the promoted server has no small disk to fill."""


def named(name: str) -> Fault:
    """Return a fault by its name.

    Raises:
        KeyError: there is none of that name.
    """
    return {fault.name: fault for fault in FAULTS}[name]
