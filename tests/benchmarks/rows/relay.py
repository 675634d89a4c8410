"""`relay`: how fast the journal's events go out, once a relay finds a backlog of them."""

from tests.benchmarks.bench import AROUND, Bench
from tests.benchmarks.loads import WARM_UP, arrived, measured, produce
from tests.benchmarks.results import Measure, at_least_times
from watchword.schemas.topics import JOIN_RESPONSES, NODE_EVENTS
from watchword.streams.simulator.fleet import Token

_LEAST_S = 0.25


async def relay(bench: Bench) -> list[Measure]:
    """Let machines join while no relay runs, then start one."""
    name, count = "relay", WARM_UP + bench.options.joins
    token = Token.new()
    requests = bench.requests(bench.machines(count), [token] * count)
    async with bench.deployed(*(n for n in AROUND if n != "relay")) as deployed:
        await deployed.add_tokens([token], uses=count)
        with bench.observing(JOIN_RESPONSES) as observer:
            await produce(bench.servers.kafka.bootstrap_servers, requests)
            await deployed.start("worker")
            pace = await measured(deployed, observer, after=WARM_UP, until=count, floor=bench.floor)
        joins_per_s = bench.joins_per_s or pace.per_second
        await deployed.stop("worker")
        with bench.observing(NODE_EVENTS) as observer:
            await deployed.start("relay", profile=bench.profile_of(name))
            pace = await measured(deployed, observer, after=WARM_UP, until=count, floor=bench.floor)
            await arrived(deployed, observer, count)
        bench.note(name, pace)
    if pace.seconds < _LEAST_S:
        # Events arrive in waves: of a short backlog, hardly anything lies between the two looks.
        bench.notes.append(f"{name}: too short to measure; it takes more --joins")
        return []
    return [
        Measure(name, "events_per_s", pace.per_second, "1/s", joins_per_s, target=at_least_times(2))
    ]
