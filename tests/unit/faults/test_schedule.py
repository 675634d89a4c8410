"""When which fault comes."""

import random
import time
from typing import Any, cast

from tests.faults.faults.fault import Fault, Scale
from tests.faults.processes.deployment import Deployment
from tests.faults.schedule import Schedule


async def _nothing(deployment: Deployment, scale: Scale) -> int:
    del deployment, scale
    return 1


async def test_faults_that_all_touch_the_same_are_no_pairs() -> None:
    """Whoever looks for a pair that is not there holds up every machine of the load until the round is over."""
    schedule = Schedule(
        cast("Any", None),
        random.Random(1),  # noqa: S311 - the same choices each time
        Scale(),
        print,
        calm_s=0.0,
    )
    flood, storm = (Fault(name, _nothing, frozenset(("gateways",))) for name in ("flood", "storm"))
    until = time.monotonic() + 2.0

    await schedule.pairs([flood, storm], until)

    assert time.monotonic() < until
    assert schedule.injections == []
