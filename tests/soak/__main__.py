"""`python -m tests.soak`: an hour at half the rate of the bench, while keys change, nodes renew and end, and shards move.

Deployment, machines and judge are those of the fault suite. One table says what everything was at the start,
after the warm-up and in the end; the run fails if something grew that has no reason to, if what is old was not
pruned or dropped, or if the judge finds anything.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.judge.findings import Findings
from tests.faults.load.load import LoadOptions
from tests.faults.processes.deployment import Layout, deployed
from tests.faults.processes.fleet import Sizes
from tests.faults.round import check_drain, judged, under_load
from tests.soak.samples import Samples
from tests.soak.upkeep import Upkeep
from tests.soak.verdict import lines, table
from tests.support.folders import ROOT
from watchword.streams.cycles import spare_the_collector

_BENCH = ROOT / "build" / "bench.json"
_RECORDS_OF_AN_ARRIVAL = 1.63
"""1.42 requests, as long as machines are answered in time (those that are not ask again: 3.6 in a run that was 1,080 s
behind), and copies of their bytes."""
_ENOUGH = 0.9
"""The share of the rate that there has to be, or the run shows nothing of that rate."""
_LONGEST_WARM_UP_S = 1000.0
"""Gateways keep answers for 900 s: until then their memory grows."""
_ANSWER_CACHE_BYTES = 32 << 20
"""So little that gateways have filled it before the warm-up is over."""
_PRUNED_WITHIN_S = 150.0
"""The keeper looks once a minute."""
_PATIENCE_S = 300.0
_BYTES_A_RECORD = 8_000
"""What the judge has in memory of one: it compares whole topics and tables."""
_SERVER = {"max_wal_size": "1GB", "min_wal_size": "80MB", "shared_buffers": "256MB"}
"""As a server of this size has them: with the little log of the fault suite it would do nothing but write checkpoints."""
_WHOLE = Layout(small_disk=False, answer_cache_bytes=_ANSWER_CACHE_BYTES, server_settings=_SERVER)
_SMALL = replace(
    _WHOLE, kafka_nodes=1, standby=False, sizes=Sizes(workers=2, keepers=1, gateways=1)
)
_SMALL_THROUGH_GATEWAYS = 0.05


def main(arguments: list[str]) -> int:
    """Return 0 only if everything stayed as it was."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument(
        "--rate",
        type=float,
        help="records of join.requests a second; half the bench's if not given",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--small", action="store_true", help="fewer of each process, one broker, no standby"
    )
    options = parser.parse_args(arguments)
    rate = options.rate or _half_of_the_bench()
    if rate is None:
        print("there is no build/bench.json to take the rate from: run make bench, or give RATE=")
        return 2
    needed = int(rate * options.seconds * _BYTES_A_RECORD)
    if needed > _available():
        print(f"the judge would need {needed >> 20} MiB: give a smaller RATE= or SECONDS=")
        return 2
    layout, load = _WHOLE, LoadOptions(rate=rate / _RECORDS_OF_AN_ARRIVAL)
    if options.small:
        layout, load = _SMALL, replace(load, through_gateways=_SMALL_THROUGH_GATEWAYS)
    return asyncio.run(_soak(options.seconds, rate, options.seed, layout, load))


async def _soak(seconds: float, rate: float, seed: int, layout: Layout, load: LoadOptions) -> int:
    logging.disable(logging.CRITICAL)
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:8.1f} {text}", flush=True)

    folder = ROOT / "build" / "soak" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    rng = random.Random(seed)  # noqa: S311 - the same choices for the same seed
    findings = Findings()
    async with deployed(folder, layout, rng, load) as deployment:
        # The machines are here, and none is to be late for a look at all that they have asked.
        spare_the_collector()
        say(f"{rate:.0f} records a second for {seconds:.0f} s")
        samples = Samples(deployment)
        upkeep = Upkeep(deployment, say, every_s=min(60.0, seconds / 8), rotate_every_s=seconds / 5)
        async with under_load(deployment, findings):
            await _for(seconds, samples, upkeep)
        say("the load is over")
        rows, partitions = await _pruned(upkeep)
        pace = deployment.load.pace
        verdict = await judged(deployment, findings, say, patience_s=_PATIENCE_S)
        await check_drain(deployment, findings)
    found = lines(samples, min(seconds / 3, _LONGEST_WARM_UP_S))
    grown = [line for line in found if line.is_flat is False]
    report = [
        table(found),
        f"\n{pace.records_rate:.1f} records a second of {rate:.1f} ({pace.rate:.1f} requests); machines came at most {pace.latest_s:.2f} s behind their time",
        f"keys changed {upkeep.rotations} times, shards moved {upkeep.moves} times",
        f"of {upkeep.planted} old rows {rows} are left, of {len(upkeep.partitions)} old partitions {partitions}",
        ", ".join(f"{count} {name}" for name, count in verdict.counts.items()),
        *verdict.findings.lines(),
        *upkeep.problems,
    ]
    kept = bool(rows or partitions or not upkeep.partitions)
    old = "what is old is kept" if kept else "what is old is gone"
    report.append(
        f"soak: {len(grown)} figures grow, {verdict.findings.counts.total()} findings, {old}"
    )
    (folder / "report.txt").write_text("\n".join([*report, ""]))
    print("\n".join(report))
    idle = not upkeep.rotations or not upkeep.moves or pace.records_rate < _ENOUGH * rate
    failed = grown or kept or idle or upkeep.problems or not verdict.findings.is_clean
    return 1 if failed else 0


async def _for(seconds: float, samples: Samples, upkeep: Upkeep) -> None:
    """Take samples and keep everything moving for so long."""
    async with asyncio.TaskGroup() as tasks:
        every_s = max(1.0, seconds / 400)
        working = [tasks.create_task(samples.run(every_s)), tasks.create_task(upkeep.run())]
        await asyncio.sleep(seconds)
        for task in working:
            task.cancel()


async def _pruned(upkeep: Upkeep) -> tuple[int, int]:
    """Wait until the keeper has looked once more; return what of the planted is left."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PRUNED_WITHIN_S):
            while any(await upkeep.left()):
                await asyncio.sleep(1.0)
    return await upkeep.left()


def _half_of_the_bench() -> float | None:
    if not _BENCH.exists():
        return None
    for row in json.loads(_BENCH.read_text()):
        if (row["name"], row["metric"]) == ("join-token", "joins_per_s"):
            return float(row["value"]) / 2
    return None


def _available() -> int:
    """Return the bytes of memory that are free or soon would be (proc(5), meminfo)."""
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) << 10


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
