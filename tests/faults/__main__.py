"""`python -m tests.faults`: kill, pause, cut off and fill up, and judge what comes out of it.

A long run is cut into rounds of at most twenty minutes, each with a deployment of its own; after each round the
state is on disk, so an interrupted run goes on with `--run NAME`. In a run of several rounds the faults
come alone, and last as long as they can, in every second one, the first included; the others are all pairs.
"""

import argparse
import asyncio
import logging
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

from tests.faults.faults.all import FAULTS, named
from tests.faults.faults.fault import Fault, Scale
from tests.faults.guards import SMALL, check_guard
from tests.faults.load.load import LoadOptions
from tests.faults.processes.deployment import FULL_FLOODS, Layout
from tests.faults.report import PROMISED_RATE, last_line, table
from tests.faults.round import Plan, play
from tests.faults.state import State

_ROUND_S = 600.0
_EXPLAIN_S = 600.0
_LONG_ROUND_S = 1200.0
"""The longest that one deployment lasts."""


def main(arguments: list[str]) -> int:
    """Return 0 only if nothing was lost, doubled or wrong, and every fault was hit."""
    options = _parse(arguments)
    if options.list:
        for fault in FAULTS:
            print(fault.name)
        return 0
    if options.guard:
        return asyncio.run(check_guard(options.guard, seed=options.seed))
    name = options.run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-seed{options.seed}"
    try:
        state = State.load(name)
    except FileNotFoundError:
        state = State(name, options.seconds, options.seed)
    state.save()
    if options.background:
        same = [argument for argument in arguments if argument != "--background"]
        return _go_to_background(state, same)
    faults = [named(n) for n in options.only.split(",")] if options.only else list(FAULTS)
    layout = SMALL if options.small else Layout()
    if options.floods == "full":
        layout = replace(layout, floods=FULL_FLOODS)
    load = LoadOptions(rate=options.arrivals)
    return asyncio.run(_run(state, faults, layout, load, explain_s=options.explain_seconds))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=_ROUND_S, help="how long faults are injected"
    )
    parser.add_argument(
        "--explain-seconds",
        type=float,
        default=_EXPLAIN_S,
        help="for how long requests of a round are explained at its end; the latest come first",
    )
    parser.add_argument("--seed", type=int, default=1, help="the same choices for the same seed")
    parser.add_argument("--run", help="the name of the run; one that was begun goes on")
    parser.add_argument("--only", help="names of faults, with commas between")
    parser.add_argument("--guard", help="switch this guard off, and see that it is noticed")
    parser.add_argument(
        "--background", action="store_true", help="return at once; the log is in build/faults"
    )
    parser.add_argument(
        "--small", action="store_true", help="one broker, no standby, fewer processes"
    )
    parser.add_argument(
        "--floods",
        choices=("scaled", "full"),
        default="scaled",
        help="full: 100,000 pieces of junk, 10,000 pollers, 10,000 machines at once",
    )
    parser.add_argument(
        "--arrivals",
        type=float,
        default=LoadOptions().rate,
        help="machines of the load that begin in a second; each makes one to three requests",
    )
    parser.add_argument("--list", action="store_true", help="list the faults")
    return parser.parse_args(arguments)


def _go_to_background(state: State, arguments: list[str]) -> int:
    log = state.folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults", *arguments, "--run", state.run],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    (state.folder / "pid").write_text(str(process.pid))
    print(f"run {state.run}: process {process.pid}, log {log}")
    return 0


async def _run(
    state: State, faults: list[Fault], layout: Layout, load: LoadOptions, *, explain_s: float
) -> int:
    # Kafka's client says much about brokers that are away, which they are on purpose.
    logging.disable(logging.CRITICAL)
    playing = asyncio.current_task()
    if playing is not None:
        # So that an end from outside leaves no server and no mounted disk behind.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:8.1f} {text}", flush=True)

    rounds = max(1, math.ceil(state.seconds / _LONG_ROUND_S))
    say(f"run {state.run}: {rounds} rounds, process {os.getpid()}")
    while state.done < rounds:
        seconds = state.seconds / rounds
        plan = Plan(
            seed=state.seed * 1000 + state.done,
            seconds=seconds,
            faults=faults,
            layout=layout,
            load=load,
            explain_s=explain_s,
            alone=state.done % 2 == 0,
            scale=Scale(1.0 if rounds > 1 else min(1.0, seconds / (2 * _ROUND_S))),
        )
        result = await play(plan, state.folder / f"round-{state.done}", say)
        state.totals.add(result)
        state.done += 1
        state.save()
        for line in result.verdict.findings.lines():
            say(line)
    not_hit = state.totals.not_hit(faults)
    report = f"{table(state.totals, faults)}\n\n{last_line(state.totals)}\n"
    (state.folder / "report.txt").write_text(report)
    print()
    if not_hit:
        print(f"without a hit: {', '.join(not_hit)}")
    if not state.totals.is_loaded:
        print(f"fewer than {PROMISED_RATE:.0f} requests a second")
    print(report, end="", flush=True)
    failed = any(state.totals.findings.values()) or not_hit or not state.totals.is_loaded
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
