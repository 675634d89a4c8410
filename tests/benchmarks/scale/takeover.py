"""`relay-takeover`: two relays share the events; one dies, one is stopped; how late the events are meanwhile."""

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from tests.benchmarks.bench import Bench, WrongResult
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.loads import arrived, produce_steadily
from tests.benchmarks.results import Measure
from watchword.schemas.topics import NODE_EVENTS
from watchword.streams.simulator.fleet import Token

_OWNERS = "SELECT count(DISTINCT owner) FROM relay_cursors WHERE expires_at > clock_timestamp()"
_FREE = "SELECT count(*) FROM relay_cursors WHERE expires_at <= clock_timestamp()"
_PATIENCE_S = 60.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class _Event:
    due: float
    late_s: float
    """From when the request was due until its event arrived."""


async def relay_takeover(bench: Bench) -> list[Measure]:
    """Let machines join at a steady rate; kill a relay, start another, stop the second, and look at every event."""
    name, options = "relay-takeover", bench.options
    phase_s = options.seconds / 3
    count = int(options.rate * options.seconds)
    token = Token.new()
    requests = bench.requests(bench.machines(count), [token] * count)
    async with bench.deployed("signer", "keeper", "relay-1", "relay-2", "worker") as deployed:
        await deployed.add_tokens([token], uses=count)
        await _until(deployed, _OWNERS, 2)
        with bench.observing(NODE_EVENTS, at_once=True) as observer:
            producing = asyncio.create_task(
                produce_steadily(
                    bench.servers.kafka.bootstrap_servers, requests, per_second=options.rate
                )
            )
            await asyncio.sleep(phase_s)
            killed = time.monotonic()
            await deployed.kill("relay-1")
            await _until(deployed, _FREE, 0)
            taken_over = time.monotonic()
            await asyncio.sleep(max(0.0, killed + phase_s - time.monotonic()))
            await deployed.start("relay-3")
            await _until(deployed, _OWNERS, 2)
            stopped = time.monotonic()
            await deployed.stop("relay-2")
            due = await producing
            await arrived(deployed, observer, count)
            records = observer.taken()
    events, repeated = _events(records, requests, due)
    if len(events) != count:
        message = f"{len(events)} of {count} events arrived"
        raise WrongResult(message)
    bench.notes.append(
        f"{name}: {options.rate:g} joins/s; leases of the killed relay were taken after {taken_over - killed:.1f} s;"
        f" {repeated} of {count} events came more than once (each with its id)"
    )
    quiet = sorted(event.late_s for event in events if event.due < killed - 1)
    return [
        Measure(name, "quiet_p50_ms", quiet[len(quiet) // 2] * 1e3, "ms"),
        Measure(name, "quiet_worst_ms", quiet[-1] * 1e3, "ms"),
        Measure(name, "sigkill_worst_s", _worst(events, killed - 1, stopped - 1), "s"),
        Measure(name, "sigterm_worst_s", _worst(events, stopped - 1, float("inf")), "s"),
        Measure(name, "repeated_events", repeated, "events"),
    ]


def _events(
    records: Sequence[tuple[float, bytes]], requests: Sequence[bytes], due: dict[bytes, float]
) -> tuple[list[_Event], int]:
    """Return the first event of each join, and how many came again."""
    of_csr = {_csr(request): due[sha256(request).digest()] for request in requests}
    found: dict[str, _Event] = {}
    repeated = 0
    for at, value in records:
        event = json.loads(value)
        if event["type"] != "node.joined" or event["csrSha256"] not in of_csr:
            continue
        csr = event["csrSha256"]
        if csr in found:
            repeated += 1
        else:
            found[csr] = _Event(of_csr[csr], at - of_csr[csr])
    return list(found.values()), repeated


def _csr(request: bytes) -> str:
    return sha256(b64decode(json.loads(request)["csr"])).hexdigest()


def _worst(events: Sequence[_Event], begin: float, end: float) -> float:
    return max((event.late_s for event in events if begin <= event.due < end), default=0.0)


async def _until(deployed: Deployment, query: str, wanted: int) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            deployed.check()
            rows = await deployed.servers.query(query, database=deployed.database)
            if rows[0][0] == wanted:
                return
            await asyncio.sleep(_LOOK_S)
