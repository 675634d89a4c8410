"""Four processes on one database, hot tokens, uses and bindings, redeliveries, bugs, dying backends."""

import asyncio
import contextlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random

import asyncpg
import pytest

from tests.support.race_checks import seed, violations
from tests.support.racing import SECRET, KeyMaterial, dealt, kill_backends, requests, run_race

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

PROCESSES = 4
PARTITIONS = 8


@pytest.mark.parametrize(
    ("count", "dying"),
    [pytest.param(1400, False, id="calm"), pytest.param(700, True, id="dying backends")],
)
async def test_races_break_nothing(
    database: str, tmp_path: Path, count: int, *, dying: bool
) -> None:
    """However many workers race, and however they die: nothing twice, nothing lost, nobody refused in vain."""
    rnd = Random(count)  # noqa: S311 - a workload
    keys = KeyMaterial.fresh()
    asked = requests(rnd, keys.seal_to, count)
    partitions = dealt(rnd, asked, PARTITIONS, 0.2)
    connection = await asyncpg.connect(database, server_settings={"search_path": "watchword"})
    kills: Counter[str] = Counter()
    try:
        await seed(connection, sha256(SECRET).digest())
        killer = asyncio.create_task(kill_backends(database, rnd, kills)) if dying else None
        race = await run_race(database, keys, partitions, tmp_path, processes=PROCESSES)
        if killer is not None:
            killer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killer

        assert await violations(connection, asked, race) == []
        happened = await _happened(connection)
    finally:
        await connection.close()

    # It was hot: what the guards are for did happen.
    assert {one.digest for one in race.told} == {one.digest for one in asked}
    assert len(race.told) > count * 1.15
    for reason in ("used-up", "replayed", "bound-elsewhere", "exhausted", "key-in-use"):
        assert happened[reason] > 3, happened
    assert happened["lane"] > 10
    assert happened["re-keyed"] > 3
    assert Counter(one.outcome for one in race.told)["unavailable"] > 5
    if dying:
        assert kills["in commit"] + kills["anywhere"] > 3
        assert race.retried
    else:
        assert race.halved


async def _happened(connection: "asyncpg.Connection[asyncpg.Record]") -> Counter[str]:
    rows = await connection.fetch("SELECT reason, count(*) FROM refusals GROUP BY 1")
    counted = Counter({row[0]: row[1] for row in rows})
    counted["lane"] = await connection.fetchval("SELECT count(*) FROM race_notes")
    counted["re-keyed"] = await connection.fetchval(
        "SELECT count(*) FROM nodes WHERE generation > 1"
    )
    return counted
