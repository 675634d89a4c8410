"""`refusal-storm`: machines that show a token's id and the wrong secret, as fast as they are refused.

Each has a key, a CSR and a seal of its own, so every one is looked at in full. All are recorded,
and the details that are published stay within the bound.
"""

from tests.benchmarks.bench import AROUND, Bench, WrongResult
from tests.benchmarks.loads import WARM_UP, measured, produce
from tests.benchmarks.results import Measure, at_least_times
from watchword.schemas.topics import JOIN_RESPONSES
from watchword.streams.simulator.fleet import Token

_RECORDED = "SELECT count(*) FROM refusals WHERE reason = 'bad-secret'"
_PUBLISHED = "SELECT count(*) FROM journal WHERE type = 'security.join.refused'"
_COUNTED = "SELECT count(*) FROM refusals WHERE published"
_NODES = "SELECT count(*) FROM nodes"


async def refusal_storm(bench: Bench) -> list[Measure]:
    """Measure refusals a second with one worker."""
    name, count = "refusal-storm", WARM_UP + bench.options.joins
    right = Token.new()
    wrong = Token(right.id, bytes(32))
    requests = bench.requests(bench.machines(count), [wrong] * count)
    async with bench.deployed(*AROUND) as deployed:
        await deployed.add_tokens([right], uses=1)
        with bench.observing(JOIN_RESPONSES) as observer:
            await produce(bench.servers.kafka.bootstrap_servers, requests)
            await deployed.start("worker", profile=bench.profile_of(name))
            pace = await measured(deployed, observer, after=WARM_UP, until=count, floor=bench.floor)
            found = bench.verified(observer, requests)
        if found.refused != count:
            message = f"{found.refused} of {count} were refused"
            raise WrongResult(message)
        bench.note(name, pace)
        await bench.must_be(deployed, _RECORDED, count)
        await bench.must_be(deployed, _NODES, 0)
        published = (await bench.servers.query(_COUNTED, database=deployed.database))[0][0]
        await bench.must_be(deployed, _PUBLISHED, published)
    return [
        Measure(
            name,
            "refusals_per_s",
            pace.per_second,
            "1/s",
            bench.joins_per_s,
            target=at_least_times(1.5),
        )
    ]
