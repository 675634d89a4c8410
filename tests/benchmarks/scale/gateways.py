"""`gateways-1`, `-2`: joins that come over HTTP, each taken by one gateway and answered by the next."""

import statistics
import time

from tests.benchmarks.accounting import busy_s, family_cpu_s
from tests.benchmarks.bench import AROUND, Bench, WrongResult
from tests.benchmarks.observer import Expected, verified
from tests.benchmarks.results import Measure
from tests.benchmarks.scale.http_load import Drivers, Round
from watchword.streams.dev.free_ports import free_port
from watchword.streams.simulator.fleet import Token

CONNECTIONS = 32
"""Machines at once, of each of the drivers."""
DRIVERS = 2


async def gateways(bench: Bench, count: int, one: float | None) -> list[Measure]:
    """Measure `count` gateways with one worker behind; `one` is the rate with a single gateway."""
    name, joins = f"gateways-{count}", bench.options.joins
    token = Token.new()
    requests = bench.requests(bench.machines(joins), [token] * joins)
    ports = [free_port() for _ in range(count)]
    async with bench.deployed(*AROUND, "worker") as deployed:
        await deployed.add_tokens([token], uses=joins)
        names = [f"gateway-{number}" for number in range(1, count + 1)]
        for gateway, port in zip(names, ports, strict=True):
            # The drivers stand for a balancer: each machine has an address, and limits, of its own.
            more = {
                "WATCHWORD_GATEWAY__PORT": str(port),
                "WATCHWORD_GATEWAY__TRUSTED_PROXIES": "127.0.0.1",
            }
            await deployed.start(gateway, more=more)
        share = [requests[nth::DRIVERS] for nth in range(DRIVERS)]
        drivers = Drivers([Round(ports, part, CONNECTIONS) for part in share])
        try:
            before, driven_before = _cpu(deployed.pids()), busy_s(drivers.pids)
            begun = time.monotonic()
            drivers.go()
            found = await drivers.driven()
            seconds = max(one.ended for one in found) - min(one.began for one in found)
            after, driven_after = _cpu(deployed.pids()), busy_s(drivers.pids)
        finally:
            drivers.close()
        deployed.check()
        await bench.must_be(deployed, "SELECT count(*) FROM nodes", joins)
    keys = bench.servers.keys
    answers = [(begun, answer) for part in found for answer in part.answers]
    checked = verified(answers, Expected(keys.signing_public, keys.ca, requests))
    if checked.faults or checked.joined != joins:
        message = f"{checked.joined} of {joins} joined; {checked.faults[:1]}"
        raise WrongResult(message)
    cost = {which: (after[which] - before[which]) / joins * 1e6 for which in after}
    waited = sorted(wait for part in found for wait in part.waited_s)
    cuts = statistics.quantiles(waited, n=100, method="inclusive")
    told = ", ".join(f"{which} {us:.0f}" for which, us in cost.items())
    bench.notes.append(
        f"{name}: {joins:,} in {seconds:.1f} s by {DRIVERS * CONNECTIONS} machines at once; CPU µs each: {told}, "
        f"drivers {(driven_after - driven_before) / joins * 1e6:.0f}"
    )
    rate = joins / seconds
    ours = sum(cost[gateway] for gateway in names)
    return [
        Measure(name, "joins_per_s", rate, "1/s", one),
        Measure(name, "gateway_cpu_us_per_join", ours, "µs"),
        Measure(name, "p50_ms", cuts[49] * 1e3, "ms"),
        Measure(name, "p99_ms", cuts[98] * 1e3, "ms"),
    ]


def _cpu(pids: dict[str, int]) -> dict[str, float]:
    return {name: family_cpu_s(pid) for name, pid in pids.items()}
