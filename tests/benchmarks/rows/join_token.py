"""`join-token` and `join-token-hot`: machines that show a token, each its own or all the same."""

import statistics
from collections.abc import Sequence

from tests.benchmarks.accounting import rss_mb
from tests.benchmarks.bench import AROUND, Bench, WrongResult
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.loads import WARM_UP, Pace, arrived, measured, produce, produce_steadily
from tests.benchmarks.observer import Findings, Observer
from tests.benchmarks.results import Measure, at_least, at_most, at_most_times
from watchword.schemas.topics import JOIN_RESPONSES
from watchword.streams.simulator.fleet import Token

_SPENT = "SELECT sum(uses_total - uses_left) FROM tokens"
_NODES = "SELECT count(*) FROM nodes"
_EVENTS = "SELECT count(*) FROM journal WHERE type = 'node.joined'"


async def join_token(bench: Bench) -> list[Measure]:
    """Measure speed and memory with one worker, then times of answer with two."""
    options, name = bench.options, "join-token"
    steady = int(options.rate * options.seconds)
    grown = max(options.growth_joins, WARM_UP + options.joins)
    total = grown + steady
    tokens = [Token.new() for _ in range(total)]
    requests = bench.requests(bench.machines(total), tokens)
    async with bench.deployed(*AROUND) as deployed:
        await deployed.add_tokens(tokens, uses=1)
        with bench.observing(JOIN_RESPONSES) as observer:
            # All of it lies ready from the start: the buffers for a backlog are as full at the first
            # look at the memory as at the second.
            pace = await _work_off(
                bench, deployed, observer, requests[:grown], until=WARM_UP + options.joins
            )
            before_mb = rss_mb(deployed.pid("worker"))
            await arrived(deployed, observer, grown)
            after_mb = rss_mb(deployed.pid("worker"))
            _all_joined(bench.verified(observer, requests[:grown]), grown)
        bench.note(name, pace)
        bench.joins_per_s = pace.per_second
        bench.floor.measure()
        latencies = await _open_loop(bench, deployed, requests[grown:])
        for query in (_NODES, _SPENT, _EVENTS):
            await bench.must_be(deployed, query, total)
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return [
        *_speed(name, pace),
        Measure(name, "p50_ms", cuts[49] * 1e3, "ms", target=at_most(15)),
        Measure(name, "p99_ms", cuts[98] * 1e3, "ms"),
        Measure(name, "rss_mb", after_mb, "MB", target=at_most(200)),
        Measure(name, "rss_growth_pct", (after_mb / before_mb - 1) * 100, "%", target=at_most(5)),
    ]


async def join_token_hot(bench: Bench) -> list[Measure]:
    """Measure speed where every machine shows the same token, whose row all of them lock."""
    name, count = "join-token-hot", WARM_UP + bench.options.joins
    token = Token.new()
    requests = bench.requests(bench.machines(count), [token] * count)
    async with bench.deployed(*AROUND) as deployed:
        await deployed.add_tokens([token], uses=count)
        with bench.observing(JOIN_RESPONSES) as observer:
            pace = await _work_off(bench, deployed, observer, requests, until=count)
            _all_joined(bench.verified(observer, requests), count)
        bench.note(name, pace)
        for query in (_NODES, _SPENT, _EVENTS):
            await bench.must_be(deployed, query, count)
    return _speed(name, pace)


async def _work_off(
    bench: Bench, deployed: Deployment, observer: Observer, requests: Sequence[bytes], *, until: int
) -> Pace:
    """Let a backlog lie ready, start a worker, and measure all but the warm-up `until` so many are done."""
    await produce(bench.servers.kafka.bootstrap_servers, requests)
    await deployed.start("worker", profile=bench.profile_of("worker"))
    return await measured(deployed, observer, after=WARM_UP, until=until, floor=bench.floor)


async def _open_loop(bench: Bench, deployed: Deployment, requests: Sequence[bytes]) -> list[float]:
    """Return the times from when a request was due until its answer arrived, in seconds."""
    await deployed.start("worker-2")
    with bench.observing(JOIN_RESPONSES, at_once=True) as observer:
        due = await produce_steadily(
            bench.servers.kafka.bootstrap_servers, requests, per_second=bench.options.rate
        )
        await arrived(deployed, observer, len(requests))
        found = bench.verified(observer, requests)
    _all_joined(found, len(requests))
    return [found.arrived[digest] - at for digest, at in due.items()]


def _all_joined(found: Findings, count: int) -> None:
    if found.joined != count:
        message = (
            f"{found.joined} of {count} joined, {found.refused} refused, {found.other} neither"
        )
        raise WrongResult(message)


def _speed(name: str, pace: Pace) -> list[Measure]:
    worker = pace.cpu_us["worker"] + pace.cpu_us["signer"]
    floor = pace.floor_us
    return [
        Measure(name, "joins_per_s", pace.per_second, "1/s", target=at_least(2400)),
        Measure(name, "worker_cpu_us_per_join", worker, "µs", floor, at_most_times(1.8)),
        Measure(name, "postgres_cpu_us_per_join", pace.cpu_us["postgres"], "µs", floor),
    ]
