"""A flood from a process of its own, so that it takes nothing of the time of the load beside it.

Reads one order from standard input as JSON, what is to be sent from a file, and writes what came of it as JSON.
"""

import asyncio
import base64
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.faults.load.booting import Boot, Booted, Loss, boot
from tests.faults.load.kafka_sender import KafkaSender
from tests.faults.load.malformed import Bases
from tests.faults.load.pouring import Plan, Poured, expected, pour

_AT_ONCE = 500
"""Records on their way to Kafka."""


async def _pour(order: Mapping[str, Any], messages: list[bytes]) -> object:
    bases = Bases(
        [base64.b64decode(one) for one in order["good"]],
        {reason: base64.b64decode(one) for reason, one in order["bad_csr"].items()},
    )
    poured = await pour(
        Plan(
            order["ports"], bases, order["junk"], order["slow"], order["pollers"], readable=messages
        )
    )
    kinds = poured.answers.keys() - {"readable"}
    return _fields(poured) | {"expected": {kind: sorted(expected(kind)) for kind in kinds}}


async def _produce(order: Mapping[str, Any], messages: list[bytes]) -> object:
    """Write as fast as Kafka takes it; return when each was acknowledged, on the monotonic clock."""
    sender = KafkaSender(order["bootstrap_servers"], random.Random())  # noqa: S311 - partitions
    door = asyncio.Semaphore(_AT_ONCE)
    keys = [base64.b64decode(key) for key in order["keys"]]
    times: list[float] = [0.0] * len(messages)

    async def write(nth: int) -> None:
        await sender.write(messages[nth], keys[nth])
        times[nth] = time.monotonic()
        door.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            for nth in range(len(messages)):
                await door.acquire()
                tasks.create_task(write(nth))
    finally:
        await sender.close()
    return times


async def _boot(order: Mapping[str, Any], messages: list[bytes]) -> object:
    machines = [
        Boot(messages[first], messages[after], Loss(loss))
        for first, after, loss in order["machines"]
    ]
    when = {name: order[name] for name in ("first_after_s", "every_s") if name in order}
    return _fields(await boot(order["ports"], machines, order["within_s"], **when))


def _fields(told: Poured | Booted) -> dict[str, Any]:
    """Return the fields as they are: `asdict` makes counters of counters' pairs."""
    return {field.name: getattr(told, field.name) for field in fields(told)}


async def _main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # By default it would look at ten thousand idle machines every few seconds, on a processor that others need.
    gc.set_threshold(10_000, 20, 100)
    order = json.loads(sys.stdin.read())
    lines = Path(order["messages"]).read_bytes().splitlines()
    messages = [base64.b64decode(line) for line in lines]
    work = {"pour": _pour, "produce": _produce, "boot": _boot}[order["do"]]
    json.dump(await work(order, messages), sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main())
