"""What the rows of the table share: options, servers, machines, the floor, and the rate of joins."""

import contextlib
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.deployment import Deployment, Servers, deployment
from tests.benchmarks.floor import Floor
from tests.benchmarks.loads import Pace
from tests.benchmarks.observer import Expected, Findings, Observer, Watch
from tests.support.folders import ROOT
from watchword.streams.simulator.fleet import Machine, Token, join_requests, machines

FOLDER = ROOT / "build" / "bench"
"""What one run leaves for the next."""

AROUND = ("signer", "relay", "keeper")
"""What runs beside the workers."""


class WrongResult(Exception):
    """The service was fast, and wrong: nothing that was measured counts."""


@dataclass(frozen=True, slots=True)
class Options:
    """How long a run is. The defaults are what the README quotes."""

    joins: int = 20_000
    growth_joins: int = 100_000
    """How many joins a worker has done when its memory is looked at again."""
    rate: float = 200.0
    """Joins a second of the open loop."""
    seconds: float = 60.0
    """How long the open loop is."""
    profile: Path | None = None
    """Where workers write what they spend their time on."""


@dataclass(slots=True)
class Bench:
    """One run."""

    options: Options
    servers: Servers
    floor: Floor
    joins_per_s: float | None = None
    """Of the row `join-token`, once it is measured."""
    notes: list[str] = field(default_factory=list[str])

    def machines(self, count: int) -> list[Machine]:
        """Return machines; every row may have the same, on its own database."""
        return machines(count, FOLDER)

    def requests(self, fleet: Sequence[Machine], tokens: Sequence[Token]) -> list[bytes]:
        """Return one request for each machine."""
        return join_requests(fleet, tokens, self.servers.keys.seal_to)

    @contextlib.asynccontextmanager
    async def deployed(self, *names: str) -> AsyncGenerator[Deployment]:
        """Give a deployment on a fresh database, with these processes started."""
        async with deployment(self.servers) as made:
            for name in names:
                await made.start(name)
            yield made

    @contextlib.contextmanager
    def observing(self, topic: str, *, at_once: bool = False) -> Generator[Observer]:
        """Give an observer of a topic."""
        observer = Observer(Watch(self.servers.kafka.bootstrap_servers, topic, at_once))
        try:
            yield observer
        finally:
            observer.close()

    def profile_of(self, row: str) -> Path | None:
        """Return where a row's worker writes its profile, if it shall."""
        folder = self.options.profile
        return None if folder is None else folder / f"{row}.prof"

    def verified(self, observer: Observer, requests: Sequence[bytes]) -> Findings:
        """Have every answer verified.

        Raises:
            WrongResult: one is wrong, or a request has none.
        """
        keys = self.servers.keys
        found = observer.verify(Expected(keys.signing_public, keys.ca, requests))
        if found.faults:
            message = f"{len(found.faults)} wrong answers, the first: {found.faults[0]}"
            raise WrongResult(message)
        if len(found.arrived) != len(requests):
            message = f"{len(found.arrived)} of {len(requests)} requests were answered"
            raise WrongResult(message)
        return found

    async def must_be(self, deployed: Deployment, query: str, expected: int) -> None:
        """Compare a count in the database; raises `WrongResult`."""
        found = (await self.servers.query(query, database=deployed.database))[0][0]
        if found != expected:
            message = f"{query}: {found}, not {expected}"
            raise WrongResult(message)

    def note(self, row: str, pace: Pace) -> None:
        """Keep what the table has no column for."""
        cpu = ", ".join(f"{name} {us:.0f}" for name, us in pace.cpu_us.items() if us >= 0.5)
        sessions = ", ".join(f"{name} {us:.0f}" for name, us in pace.sessions_us.items())
        self.notes.append(
            f"{row}: {pace.records:,} in {pace.seconds:.1f} s; CPU µs each: {cpu}; "
            f"PostgreSQL's by session: {sessions}; "
            f"floor meanwhile {pace.floor_us:.0f}, alone {self.floor.alone:.0f}; "
            f"strangers took {pace.foreign:.2f} cores"
        )
