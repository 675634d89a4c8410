"""PostgreSQL crashes, stalls, takes no connections, writes nothing, has no room, or is replaced."""

import asyncio
import contextlib
import time
from typing import Any

import asyncpg

from tests.faults.faults.fault import Fault, NotHit, Scale, until
from tests.faults.judge.tables import AWAY
from tests.faults.processes.deployment import Deployment

_AT_ONCE = 6
_OURS = "application_name LIKE 'watchword-%' AND pid <> pg_backend_pid()"


async def crash(deployment: Deployment, scale: Scale) -> int:
    """Stop the server as a crash would, and start it again."""
    del scale
    await deployment.postgres.primary.restart("immediate")
    return 1


async def stall(deployment: Deployment, scale: Scale) -> int:
    """Freeze the server and every session of it."""
    primary = deployment.postgres.primary
    primary.pause()
    try:
        await asyncio.sleep(scale.seconds(8.0, least=4.0))
    finally:
        primary.resume()
    return 1


async def end_all_sessions(deployment: Deployment, scale: Scale) -> int:
    """End every session of ours at once."""
    del scale
    rows = await deployment.postgres.run(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OURS}"  # noqa: S608 - ours
    )
    return len(rows)


async def end_in_commit(deployment: Deployment, scale: Scale) -> int:
    """End sessions while they commit: whether they did is then unknown to whoever asked."""
    postgres = deployment.postgres
    connection = await postgres.connect()
    standby = postgres.standby
    hits = 0
    deadline = time.monotonic() + scale.seconds(20.0, least=8.0)
    try:
        if standby is not None:
            # Commits now wait for the standby: all that are ended have been written already.
            standby.pause()
            await asyncio.sleep(0.5)
            hits += await _end_committing(connection)
            standby.resume()
        while hits < 5 and time.monotonic() < deadline:
            hits += await _end_committing(connection)
            await asyncio.sleep(0.002)
    finally:
        if standby is not None:
            standby.resume()
        await connection.close()
    if not hits:
        message = "no session was met in its commit"
        raise NotHit(message)
    return hits


async def _end_committing(connection: Any) -> int:  # noqa: ANN401 - asyncpg's own type is generic
    rows = await connection.fetch(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OURS} "  # noqa: S608 - ours
        "AND state = 'active' AND (query ILIKE 'commit%' OR wait_event = 'SyncRep')"
    )
    return len(rows)


async def take_connections(deployment: Deployment, scale: Scale) -> int:
    """Take every connection that there is, end a worker's and a relay's sessions, and take those too."""
    held: list[Any] = []
    superuser = await deployment.postgres.connect()
    seconds = scale.seconds(60.0, least=12.0)
    victims = ("watchword-worker worker-0", "watchword-relay", "watchword-keeper")
    try:
        refused = await _take_all(deployment, held)
        ended = await superuser.fetch(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = ANY($1)",
            list(victims),
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            refused += await _take_all(deployment, held)
            await asyncio.sleep(0.05)
        if not refused or not ended:
            message = "the limit of connections was not reached"
            raise NotHit(message)
        return len(ended)
    finally:
        await superuser.close()
        for connection in held:
            connection.terminate()


async def _take_all(deployment: Deployment, held: list[Any]) -> int:
    """Open connections, some at once, until one is refused; return how many were."""

    async def take() -> bool:
        try:
            held.append(await asyncpg.connect(deployment.postgres.dsn, timeout=5))
        except AWAY:
            return False
        return True

    while True:
        taken = await asyncio.gather(*(take() for _ in range(_AT_ONCE)))
        if not all(taken):
            return taken.count(False)


async def read_only(deployment: Deployment, scale: Scale) -> int:
    """Let nobody write, as a server does whose operator has seen trouble."""
    postgres = deployment.postgres
    log = postgres.primary.log
    before = log.read_text(errors="replace").count("read-only transaction")
    connection = await postgres.connect()
    try:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await connection.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(scale.seconds(10.0, least=4.0))
    finally:
        await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
    hits = log.read_text(errors="replace").count("read-only transaction") - before
    if not hits:
        message = "nobody tried to write"
        raise NotHit(message)
    return hits


async def fill_disk(deployment: Deployment, scale: Scale) -> int:
    """Leave no room for the log of transactions until the server gives up; then make room."""
    postgres = deployment.postgres
    disk, primary = postgres.disk, postgres.primary
    if disk is None:
        raise NotHit(postgres.no_disk)
    log = primary.log
    before = log.read_text(errors="replace").count("No space left on device")

    async def is_small() -> bool:
        # A checkpoint takes away the segments that nobody needs any more.
        with contextlib.suppress(*AWAY):
            await postgres.run("CHECKPOINT")
        return await asyncio.to_thread(disk.shrink)

    try:
        await until(is_small, "the log fits on the small disk", within_s=60.0)
        await asyncio.to_thread(disk.fill)

        async def has_given_up() -> bool:
            with contextlib.suppress(*AWAY):
                # Uses up the segments that are there already.
                async with asyncio.timeout(1.0):
                    await postgres.run("SELECT pg_switch_wal()")
            said = log.read_text(errors="replace").count("No space left on device")
            return said > before

        await until(has_given_up, "the server meets the end of the disk", within_s=30.0)
        await asyncio.sleep(scale.seconds(5.0, least=2.0))
    finally:
        disk.free()
    if not primary.is_running:
        await primary.start()
    await until(lambda: _takes_writes(deployment), "the server takes writes again", within_s=30.0)
    if postgres.standby is not None:
        await until(postgres.is_streaming, "the standby goes on", within_s=60.0)
    return 1


async def _takes_writes(deployment: Deployment) -> bool:
    with contextlib.suppress(*AWAY):
        async with asyncio.timeout(5.0):
            rows = await deployment.postgres.run("SELECT pg_is_in_recovery()")
            return not rows[0][0]
    if not deployment.postgres.primary.is_running:
        await deployment.postgres.primary.start()
    return False


async def fail_over(deployment: Deployment, scale: Scale) -> int:
    """Kill the server, let its standby take its place, and give that a standby of its own."""
    del scale
    await deployment.postgres.promote()
    await deployment.postgres.add_standby()
    return 1


def _no_disk(deployment: Deployment) -> str | None:
    return None if deployment.postgres.disk is not None else deployment.postgres.no_disk


def _no_standby(deployment: Deployment) -> str | None:
    return None if deployment.postgres.standby is not None else "there is no standby"


_POSTGRES = frozenset(("postgres",))
STALLED = "PostgreSQL stalled"

FAULTS = (
    Fault("PostgreSQL crashed", crash, _POSTGRES, "1.1 s"),
    Fault(STALLED, stall, _POSTGRES),
    Fault("all sessions ended", end_all_sessions, _POSTGRES, "0.25 s"),
    Fault("sessions ended in commit", end_in_commit, _POSTGRES),
    Fault("no connections left", take_connections, _POSTGRES),
    Fault("PostgreSQL read-only", read_only, _POSTGRES),
    Fault("disk full", fill_disk, _POSTGRES, impossible=_no_disk),
    Fault("fail-over to the standby", fail_over, _POSTGRES, impossible=_no_standby),
)
