"""`workers-1`, `-2`, `-4`: how much faster a backlog is worked off by more workers, and what each join costs then."""

import asyncio

from tests.benchmarks.bench import AROUND, Bench, WrongResult
from tests.benchmarks.loads import WARM_UP, measured, produce
from tests.benchmarks.results import Measure
from watchword.schemas.topics import JOIN_RESPONSES
from watchword.streams.simulator.fleet import Token


class TooShort(Exception):
    """The backlog was gone before all workers were there: it takes more `--joins`."""


async def workers(bench: Bench, count: int, one: float | None) -> list[Measure]:
    """Measure `count` workers on one backlog, from when the last of them is ready; `one` is the rate of a single one."""
    name = f"workers-{count}"
    joins = WARM_UP + bench.options.joins * count
    tokens = [Token.new() for _ in range(joins)]
    requests = bench.requests(bench.machines(joins), tokens)
    async with bench.deployed(*AROUND) as deployed:
        await deployed.add_tokens(tokens, uses=1)
        with bench.observing(JOIN_RESPONSES) as observer:
            await produce(bench.servers.kafka.bootstrap_servers, requests)
            names = [f"worker-{number}" for number in range(1, count + 1)]
            await asyncio.gather(*(deployed.start(one_name) for one_name in names))
            after = max(WARM_UP, observer.count)
            if joins - after < bench.options.joins / 2:
                message = f"{name}: {after} of {joins} were done when all workers were ready"
                raise TooShort(message)
            pace = await measured(deployed, observer, after=after, until=joins, floor=bench.floor)
            found = bench.verified(observer, requests)
        if found.joined != joins:
            message = f"{found.joined} of {joins} joined"
            raise WrongResult(message)
        await bench.must_be(deployed, "SELECT count(*) FROM nodes", joins)
    bench.note(name, pace)
    ours = sum(pace.cpu_us[worker] for worker in names)
    return [
        Measure(name, "joins_per_s", pace.per_second, "1/s", one),
        Measure(name, "worker_cpu_us_per_join", ours, "µs", pace.floor_us),
        Measure(name, "signer_cpu_us_per_join", pace.cpu_us["signer"], "µs", pace.floor_us),
        Measure(name, "postgres_cpu_us_per_join", pace.cpu_us["postgres"], "µs", pace.floor_us),
        Measure(name, "kafka_cpu_us_per_join", pace.cpu_us["kafka"], "µs", pace.floor_us),
        Measure(name, "least_worker_share", min(_shares(pace.cpu_us, names)) * count, "of fair"),
    ]


def _shares(cpu_us: dict[str, float], names: list[str]) -> list[float]:
    total = sum(cpu_us[name] for name in names) or 1.0
    return [cpu_us[name] / total for name in names]
