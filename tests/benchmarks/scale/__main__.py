"""`python -m tests.benchmarks.scale`: one run, one table, and `build/scale.json`."""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks import results
from tests.benchmarks.bench import Bench, Options
from tests.benchmarks.deployment import servers
from tests.benchmarks.floor import Floor
from tests.benchmarks.results import Measure
from tests.benchmarks.scale.gateways import gateways
from tests.benchmarks.scale.takeover import relay_takeover
from tests.benchmarks.scale.workers import workers
from tests.support.folders import ROOT

WORKERS, GATEWAYS = (1, 2, 4), (1, 2)
TAKEOVER = "relay-takeover"
ROWS = (*(f"workers-{n}" for n in WORKERS), *(f"gateways-{n}" for n in GATEWAYS), TAKEOVER)


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--only", choices=ROWS, action="append", help="only this row; again for more"
    )
    parser.add_argument("--joins", type=int, default=20_000, help="joins of each worker, and of each row of gateways")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=90.0, help="of the relays' row")
    parser.add_argument("--rate", type=float, default=200.0, help="joins a second of that row")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "scale.json")
    return parser.parse_args(given)


async def run(names: Sequence[str], options: Options) -> list[Measure]:
    """Measure rows and print the table. The ratio of a rate is to that of one worker, or one gateway."""
    floor = Floor()
    floor.measure()
    found: list[Measure] = []
    async with servers() as host:
        print(
            f"# {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {platform.machine()}, "
            f"Python {platform.python_version()}; {results.load_averages()}; {' '.join(names)}"
        )
        bench = Bench(options, host, floor)
        single: dict[str, float] = {}
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            kind, _, number = name.partition("-")
            if name == TAKEOVER:
                found += await relay_takeover(bench)
            else:
                row = workers if kind == "workers" else gateways
                measures = await row(bench, int(number), single.get(kind))
                if number == "1":
                    single[kind] = measures[0].value
                found += measures
            floor.measure()
        print("\n".join(f"# {note}" for note in bench.notes))
    print(
        f"# floor alone: {', '.join(f'{us:.0f}' for us in floor.quiet)} µs; {results.load_averages()}\n"
    )
    print(results.table(found))
    return found


def main(given: Sequence[str]) -> int:
    """Run it; the figures have no targets."""
    arguments = _arguments(given)
    options = Options(joins=arguments.joins, rate=arguments.rate, seconds=arguments.seconds)
    names = [name for name in ROWS if not arguments.only or name in arguments.only]
    results.write(asyncio.run(run(names, options)), arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
