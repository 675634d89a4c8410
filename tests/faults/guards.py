"""Guards that only show when processes die: each switched off in every process of a deployment."""

import shutil
import time
from dataclasses import dataclass, replace

from tests.faults.faults.all import named
from tests.faults.faults.fault import Scale
from tests.faults.load.load import LoadOptions
from tests.faults.processes.deployment import Floods, Layout
from tests.faults.processes.fleet import Sizes
from tests.faults.round import Plan, play
from tests.faults.state import RUNS
from tests.guards.registry import GUARDS

SMALL = Layout(
    kafka_nodes=1,
    standby=False,
    small_disk=False,
    sizes=Sizes(workers=2, relays=2, keepers=1, gateways=1),
    single_use=200,
    floods=Floods(junk=600, valid=10, slow=6, pollers=60, agents=60, waiters=8),
)
"""A deployment for faults that need no more."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The faults under which the lack of a guard shows."""

    faults: tuple[str, ...]
    finds: frozenset[str]
    """What the judge must find then: the beginning of a check's name."""


SCENARIOS: dict[str, Scenario] = {
    "response before acknowledgement": Scenario(
        ("worker killed after commit",) * 2,
        frozenset(("request without an answer", "recorded outcome that was never answered")),
    ),
    "contiguous acknowledgement": Scenario(
        ("worker killed before commit", "worker killed after commit") * 2,
        frozenset(("request without an answer",)),
    ),
    "producer replacement": Scenario(
        ("record rejected and parked",),
        frozenset(("row without its event",)),
    ),
    "epoch fence": Scenario(
        ("relay paused after send",) * 2,
        frozenset(("cursor of the relay went back",)),
    ),
    "inbox claim, over processes": Scenario(
        ("worker killed after commit",),
        frozenset(("request with several refusal rows", "request with two final outcomes")),
    ),
    "savepoint": Scenario(
        ("worker killed before commit",),
        frozenset(("what a verifier wrote outlived its refusal",)),
    ),
    "ordered journal": Scenario(
        ("worker killed after commit",),
        frozenset(
            (
                "last node.joined or node.renewed is not of the current",
                "events of one key out of order",
            )
        ),
    ),
    "spend under lock, over processes": Scenario(
        (),
        frozenset(("UNAVAILABLE", "token admitted more", "admission without a spend")),
    ),
}


async def check_guard(name: str, *, seed: int, seconds: float = 25.0) -> int:
    """Play a guard's faults without the guard; return 0 only if the judge finds what it must.

    Raises:
        KeyError: there is no such guard.
    """
    scenario = SCENARIOS[name]
    off = next(guard.off for guard in GUARDS if guard.name == name)
    folder = RUNS / f"guard-{off}"
    shutil.rmtree(folder, ignore_errors=True)
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:8.1f} {text}", flush=True)  # noqa: T201 - a program's output

    plan = Plan(
        seed=seed,
        seconds=seconds,
        faults=[named(fault) for fault in scenario.faults],
        layout=replace(SMALL, guard_off=off),
        load=LoadOptions(answer_within_s=20.0),
        in_pairs=False,
        scale=Scale(0.05),
        patience_s=20.0,
        calm_s=5.0,
    )
    result = await play(plan, folder, say)
    for line in result.verdict.findings.lines():
        say(line)
    found = [
        check
        for _, check in result.verdict.findings.checks
        if any(check.startswith(beginning) for beginning in scenario.finds)
    ]
    say(f"{name}: {'caught' if found else 'MISSED'} ({', '.join(found) or 'nothing was found'})")
    return 0 if found else 1
