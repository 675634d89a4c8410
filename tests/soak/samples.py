"""What is measured while it runs: each process from outside (proc(5)), tables and indexes, and who waits."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.faults.judge.tables import AWAY
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import Deployment

MEMORY, HANDLES, CONNECTIONS = "memory", "handles", "connections"
LAG, WAITING = "journal lag", "oldest request without an answer"
TABLES, INDEXES = "tables", "indexes"

_MIB = 1 << 20
_SIZES = """
SELECT coalesce(parent.relname, t.relname)::text AS name,
    sum(pg_table_size(t.oid))::bigint AS heap, sum(pg_indexes_size(t.oid))::bigint AS indexes
FROM pg_class t LEFT JOIN pg_inherits i ON i.inhrelid = t.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
WHERE t.relnamespace = 'watchword'::regnamespace AND t.relkind = 'r' GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Series:
    """What a row of the table is about."""

    what: str
    of: str
    unit: str


@dataclass(frozen=True, slots=True)
class Taken:
    """One sample: seconds since the start, and the figure of each series."""

    at_s: float
    figures: Mapping[Series, float]


@dataclass(slots=True)
class Samples:
    """All that was taken of a deployment."""

    deployment: Deployment
    begun: float = field(default_factory=time.monotonic)
    taken: list[Taken] = field(default_factory=list[Taken])

    async def run(self, every_s: float) -> None:
        """Take samples until cancelled."""
        while True:
            # A machine that is too busy for a connection costs a sample, not the run.
            with suppress(*AWAY):
                await self.take()
            await asyncio.sleep(every_s)

    async def take(self) -> None:
        """Take one."""
        found: dict[Series, float] = {}
        fleet = self.deployment.fleet
        for child in fleet.children.values():
            found |= _of_process(child)
        lags = [
            await asyncio.to_thread(
                fleet.metric, relay, "watchword_relay_oldest_unpublished_seconds"
            )
            for relay in fleet.of("relay")
        ]
        found[Series(LAG, "relays", "s")] = max(lags, default=0.0)
        count, oldest_s = self.deployment.ledger.waiting(time.monotonic())
        found[Series(WAITING, "all", "s")] = oldest_s if count else 0.0
        found |= await self._of_postgres()
        self.taken.append(Taken(time.monotonic() - self.begun, found))

    def figure(self, series: Series, from_s: float, until_s: float) -> float | None:
        """Return the median of a series over some time."""
        within = [
            one.figures[series]
            for one in self.taken
            if from_s <= one.at_s <= until_s and series in one.figures
        ]
        return median(within) if within else None

    @property
    def series(self) -> list[Series]:
        """Return every series, in a steady order."""
        seen: defaultdict[str, set[Series]] = defaultdict(set)
        for one in self.taken:
            for series in one.figures:
                seen[series.what].add(series)
        order = (MEMORY, HANDLES, CONNECTIONS, LAG, WAITING, TABLES, INDEXES)
        return [one for what in order for one in sorted(seen[what], key=lambda s: s.of)]

    async def _of_postgres(self) -> dict[Series, float]:
        postgres = self.deployment.postgres
        sessions = await postgres.run(
            "SELECT count(*) FROM pg_stat_activity WHERE usename IS NOT NULL AND pid <> pg_backend_pid()"
        )
        found = {Series(CONNECTIONS, "PostgreSQL", ""): float(sessions[0][0])}
        for row in await postgres.run(_SIZES):
            found[Series(TABLES, row["name"], "MiB")] = row["heap"] / _MIB
            found[Series(INDEXES, row["name"], "MiB")] = row["indexes"] / _MIB
        return found


def _of_process(child: Child) -> dict[Series, float]:
    """Return memory, open files and open sockets of a process; nothing of one that has just ended."""
    if child.process is None:
        return {}
    place = Path(f"/proc/{child.process.pid}")
    try:
        status = (place / "status").read_text()
        links = [_target(link) for link in (place / "fd").iterdir()]
    except OSError:
        return {}
    resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
    sockets = sum(target.startswith("socket:") for target in links)
    return {
        Series(MEMORY, child.name, "MiB"): resident,
        Series(HANDLES, child.name, ""): float(len(links)),
        Series(CONNECTIONS, child.name, ""): float(sockets),
    }


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
