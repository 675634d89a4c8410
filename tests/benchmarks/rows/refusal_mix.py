"""`refusal-mix`: a hundred reasons at once; one worker and three; and whether a reason can be told by its time.

The reasons are a stranger's, whose attestor is found by its entry point as any other: the path of every refusal is the
whole one, and each reason has a bucket of its own.
"""

import asyncio
import contextlib
import os
import statistics
from collections import defaultdict
from collections.abc import AsyncGenerator

import asyncpg

from tests.benchmarks.bench import AROUND, Bench, WrongResult
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.loads import WARM_UP, arrived, measured, produce, produce_steadily
from tests.benchmarks.results import Measure, at_least, at_least_times, at_most
from tests.support.refused_requests import Ask
from watchword.schemas.topics import JOIN_RESPONSES

REASONS = 100
PAIRS = 5
_NAME = "refusal-mix"
_LOOK_S = 0.02

_ATTESTOR = """
from watchword.handlers.attestor import refuser
from watchword.schemas.reasons import Reason

refuse = refuser("mix")

class Mix:
    id = "mix"
    version = "1"
    roles = frozenset(("node",))
    reasons = tuple(Reason(f"reason-{n}", f"MX{n:04}", "low", "One of many.") for n in range(%d))

    async def verify(self, evidence, context):
        raise refuse("reason-" + evidence.payload.decode())

mix = Mix()
"""

_WAITS = """
SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid AND NOT l.granted
LEFT JOIN pg_class c ON c.oid = l.relation
WHERE a.datname = current_database() AND a.wait_event_type = 'Lock'
    AND (c.relname LIKE 'refusal%' OR l.locktype IN ('tuple', 'transactionid') AND a.query ILIKE '%refusal%')
"""


async def refusal_mix(bench: Bench) -> list[Measure]:
    """Measure refusals a second for a hundred reasons, three workers against one, and the spread of times."""
    count = WARM_UP + bench.options.joins
    fleet = bench.machines(count)
    asks = [Ask("mix", str(n).encode()) for n in range(REASONS)]
    seal_to = bench.servers.keys.seal_to
    requests = [
        asks[number % REASONS].request(machine, seal_to) for number, machine in enumerate(fleet)
    ]
    variables = _plugin(bench)
    waits: list[int] = []
    async with _deployed(bench) as deployed:
        with bench.observing(JOIN_RESPONSES) as observer:
            await produce(bench.servers.kafka.bootstrap_servers, requests)
            await deployed.start("worker", profile=bench.profile_of(_NAME), more=variables)
            async with _watching(deployed, waits):
                pace = await measured(
                    deployed, observer, after=WARM_UP, until=count, floor=bench.floor
                )
            found = bench.verified(observer, requests)
        if found.refused != count:
            message = f"{found.refused} of {count} were refused"
            raise WrongResult(message)
        bench.note(_NAME, pace)
        await bench.must_be(deployed, "SELECT count(*) FROM refusals", count)
        reasons = "SELECT count(DISTINCT reason) FROM refusals"
        await bench.must_be(deployed, reasons, REASONS)
    alone, three = await _against_each_other(bench, variables, waits)
    spread = await _spread(bench, variables)
    bench.notes.append(
        f"{_NAME}: {len(waits)} looks at pg_stat_activity, {sum(waits)} waits on refusals' tables; "
        f"one worker {alone:,.0f}/s, three {three:,.0f}/s (medians of {PAIRS})"
    )
    return [
        Measure(_NAME, "refusals_per_s", pace.per_second, "1/s", bench.joins_per_s, at_least_times(1.5)),
        Measure(_NAME, "three_workers_to_one", three / alone, "", None, at_least(0.9)),
        Measure(_NAME, "lock_waits", float(sum(waits)), "", None, at_most(0)),
        Measure(_NAME, "spread_of_medians_ms", spread, "ms"),
    ]  # fmt: skip


async def _against_each_other(
    bench: Bench, variables: dict[str, str], waits: list[int]
) -> tuple[float, float]:
    """Return the medians of five runs each with one and with three workers, in turns."""
    rates: dict[int, list[float]] = {1: [], 3: []}
    count = max(1000, bench.options.joins // 4)
    fleet = bench.machines(count)
    seal_to = bench.servers.keys.seal_to
    for _ in range(PAIRS):
        for workers, found in rates.items():
            requests = [
                Ask("mix", str(number % REASONS).encode()).request(machine, seal_to)
                for number, machine in enumerate(fleet)
            ]
            async with _deployed(bench) as deployed:
                with bench.observing(JOIN_RESPONSES) as observer:
                    for number in range(workers):
                        await deployed.start(f"worker-{number}", more=variables)
                    await produce(bench.servers.kafka.bootstrap_servers, requests)
                    async with _watching(deployed, waits):
                        pace = await measured(
                            deployed, observer, after=count // 5, until=count, floor=bench.floor
                        )
                    found.append(pace.per_second)
    return statistics.median(rates[1]), statistics.median(rates[3])


async def _spread(bench: Bench, variables: dict[str, str]) -> float:
    """Return by how many milliseconds the median times of the reasons differ at a steady rate, at the most."""
    count = max(REASONS * 5, int(bench.options.rate * bench.options.seconds / 4))
    fleet = bench.machines(count)
    requests = [
        Ask("mix", str(number % REASONS).encode()).request(machine, bench.servers.keys.seal_to)
        for number, machine in enumerate(fleet)
    ]
    async with _deployed(bench) as deployed:
        await deployed.start("worker", more=variables)
        with bench.observing(JOIN_RESPONSES, at_once=True) as observer:
            due = await produce_steadily(
                bench.servers.kafka.bootstrap_servers, requests, per_second=bench.options.rate
            )
            await arrived(deployed, observer, count)
            found = bench.verified(observer, requests)
    times: dict[int, list[float]] = defaultdict(list)
    for number, digest in enumerate(due):
        times[number % REASONS].append(found.arrived[digest] - due[digest])
    medians = [statistics.median(each) for each in times.values()]
    return (max(medians) - min(medians)) * 1000


@contextlib.asynccontextmanager
async def _deployed(bench: Bench) -> AsyncGenerator[Deployment]:
    async with bench.deployed(*AROUND) as deployed:
        yield deployed


@contextlib.asynccontextmanager
async def _watching(deployed: Deployment, waits: list[int]) -> AsyncGenerator[None]:
    """Count, again and again meanwhile, who waits for a lock of a refusal's."""
    connection = await asyncpg.connect(deployed.servers.postgres.dsn(deployed.database))

    async def watch() -> None:
        while True:
            waits.append(await connection.fetchval(_WAITS))
            await asyncio.sleep(_LOOK_S)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        connection.terminate()
        if not watching.cancelled():
            watching.result()  # whoever looks no more has seen no wait


def _plugin(bench: Bench) -> dict[str, str]:
    """Write a package with the attestor and its entry point, and return the variables that make a worker find it."""
    home = bench.servers.folder / "plugin"
    metadata = home / "mix-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (home / "mix_attestor.py").write_text(_ATTESTOR % REASONS, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mix\nVersion: 1\n", "utf-8")
    (metadata / "entry_points.txt").write_text(
        "[watchword.attestors]\nmix = mix_attestor:mix\n", encoding="utf-8"
    )
    path = bench.servers.environment("")["PYTHONPATH"]
    return {
        "WATCHWORD_ATTESTORS__ENABLED": "mix",
        "PYTHONPATH": os.pathsep.join((path, str(home))),
    }
