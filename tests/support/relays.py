"""Relays for tests: in this process, and in processes of their own that can be killed and paused."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import asyncpg

from tests.support.folders import ROOT
from tests.support.waiting import until_true
from watchword.handlers.store.connection import Database
from watchword.streams import failpoints
from watchword.streams.health import Health
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.lifecycle import Lifecycle
from watchword.streams.relay import RelayOptions, run_relay


def relay_options(
    dsn: str, servers: str, *, name: str = "test", lease_s: float = 2.0, wave_rows: int = 2_000
) -> RelayOptions:
    """Return options for one relay, whose event to stop it is not set."""
    return RelayOptions(
        database=Database(dsn, application_name=f"relay-{name}"),
        kafka=KafkaConnection(servers),
        name=name,
        lifecycle=Lifecycle(health=Health(), stop=asyncio.Event()),
        lease_s=lease_s,
        wave_rows=wave_rows,
        wave_s=min(5.0, lease_s),
    )


@contextlib.asynccontextmanager
async def running(options: RelayOptions) -> AsyncGenerator[RelayOptions]:
    """Run a relay in this process, and stop it; a bug in it fails the test."""
    task = asyncio.create_task(run_relay(options))
    try:
        yield options
    finally:
        assert options.lifecycle.stop is not None
        options.lifecycle.stop.set()
        await task


class RelayProcess:
    """A relay in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take the process; `start` makes one."""
        self.process = process

    @classmethod
    async def start(
        cls,
        dsn: str,
        servers: str,
        name: str,
        *,
        lease_s: float = 2.0,
        failpoint: str = "",
        log: Path,
    ) -> "RelayProcess":
        """Start a relay; at `failpoint` (a name, or name:n for its n-th time) it kills itself."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.support.relays",
                dsn,
                servers,
                name,
                str(lease_s),
                failpoint,
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )
        return cls(process)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self, *, within_s: float = 10.0) -> int:
        """Return the exit status."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()

    async def remove(self) -> None:
        """Kill it, whatever it is doing."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


async def owners(dsn: str) -> dict[str, int]:
    """Return how many shards each relay has, by its name without the suffix."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT regexp_replace(owner, '-[^-]*$', '') AS owner, count(*) AS n FROM watchword.relay_cursors "
            "WHERE owner IS NOT NULL AND expires_at > clock_timestamp() GROUP BY 1"
        )
    finally:
        await connection.close()
    return {row["owner"]: row["n"] for row in rows}


async def until_shared(dsn: str, shares: dict[str, int], *, within_s: float = 10.0) -> None:
    """Wait until the relays have just these numbers of shards."""

    async def shared() -> bool:
        return await owners(dsn) == shares

    await until_true(shared, f"shared as {shares}", within_s=within_s)


def _kill_at(failpoint: str) -> None:
    name, _, times = failpoint.partition(":")
    left = int(times or 1)

    def hook(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    failpoints.install(hook)


async def _main(dsn: str, servers: str, name: str, lease_s: str, failpoint: str) -> None:
    if failpoint:
        _kill_at(failpoint)
    options = relay_options(dsn, servers, name=name, lease_s=float(lease_s))
    await run_relay(
        RelayOptions(
            options.database, options.kafka, name, lease_s=options.lease_s, wave_s=options.wave_s
        )
    )


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
