"""`python -m tests.benchmarks`: one run, one table, and `build/bench.json`."""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks import results
from tests.benchmarks.bench import Bench, Options
from tests.benchmarks.deployment import Servers, servers
from tests.benchmarks.floor import Floor
from tests.benchmarks.results import Measure
from tests.benchmarks.rows import ROWS
from tests.support.folders import ROOT

_POSTGRES = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
)


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=ROWS, action="append", help="only this row; again for more"
    )
    parser.add_argument("--joins", type=int, default=default.joins, help="joins of each load")
    parser.add_argument("--growth-joins", type=int, default=default.growth_joins)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="of the open loop")
    parser.add_argument(
        "--rate", type=float, default=default.rate, help="of the open loop, a second"
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--profile", type=Path, help="a folder for samples of where time goes")
    return parser.parse_args(given)


async def run(names: Sequence[str], options: Options) -> list[Measure]:
    """Measure rows and print the table."""
    floor = Floor()
    floor.measure()
    found: list[Measure] = []
    async with servers() as host:
        await _say_conditions(host)
        bench = Bench(options, host, floor)
        for name in names:
            _progress(f"{name} …")
            found += await ROWS[name](bench)
            floor.measure()
        print("\n".join(f"# {note}" for note in bench.notes))
    print(
        f"# floor alone: {', '.join(f'{us:.0f}' for us in floor.quiet)} µs; {results.load_averages()}\n"
    )
    print(results.table(found))
    return found


async def _say_conditions(host: Servers) -> None:
    settings = {name: (await host.query(f"SHOW {name}"))[0][0] for name in _POSTGRES}
    print(
        f"# {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, cryptography {version('cryptography')}; {results.load_averages()}"
    )
    print("# PostgreSQL: " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    print(
        "# Kafka: one broker, acks all, idempotent producers; topics as `watchword topics apply` makes them"
    )
    print(
        "# one worker, signer, relay, keeper as processes of their own; two workers for p50 and p99"
    )
    print(
        "# answers are counted on arrival by a reader of its own, and every one is verified afterwards"
    )


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(given: Sequence[str]) -> int:
    """Run the benchmark; return 1 if a target was missed."""
    arguments = _arguments(given)
    options = Options(
        joins=arguments.joins,
        growth_joins=arguments.growth_joins,
        rate=arguments.rate,
        seconds=arguments.seconds,
        profile=arguments.profile,
    )
    names = [name for name in ROWS if not arguments.only or name in arguments.only]
    found = asyncio.run(run(names, options))
    results.write(found, arguments.json)
    missed = [m for m in found if m.target is not None and not m.target.is_met(m)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
