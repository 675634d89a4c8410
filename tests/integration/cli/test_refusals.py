"""What a security engineer types when the SIEM is down, as processes of their own."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.support.cef_lines import read_cef
from tests.support.commands import Command, result
from watchword.handlers.store.connection import Database
from watchword.schemas.ecs import to_ecs
from watchword.schemas.events import JoinRefused
from watchword.schemas.ocsf import to_ocsf

pytestmark = pytest.mark.postgres

HARDWARE, CSR, TRIED = (sha256(text).digest() for text in (b"ek", b"csr", b"join-token:t"))
EVENT = UUID("0190163d-8694-739b-aea5-966c26f8ad91")
REQUEST = "0190163d-8694-739b-aea5-966c26f8ad92"

_INSERT = """
INSERT INTO watchword.refusals (type, attestor, reason, tenant, role, request_sha256, request_id, csr_sha256,
    hardware_key_sha256, topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address)
SELECT 'refused', $1, $2, $3, 'node', sha256(n::text::bytea), $4, $5, $6, 'join.requests', length($2), n, 'w', n = 1,
    now() - make_interval(secs => $7) + make_interval(secs => n / 1000.0), CASE WHEN n = 1 THEN $8::uuid END, $9, $10
FROM generate_series(1, $11) AS n
"""


async def _fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        _INSERT, "join-token", "bad-secret", "root", REQUEST, CSR, HARDWARE, 60, EVENT, TRIED, "192.0.2.7", 1
    )  # fmt: skip
    await connection.execute(
        _INSERT, "join-token", "expired", "acme", None, CSR, None, 60, None, None, None, 2500
    )  # fmt: skip
    await connection.execute(
        _INSERT, "acme-asset", "no-asset", "acme", None, None, None, 60, None, None, None, 2
    )  # fmt: skip
    await connection.close()


@pytest.fixture
def filled(database: str) -> str:
    asyncio.run(_fill(database))
    return database


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--tenant", "root"], 1),
        (["--attestor", "acme-asset"], 2),
        (["--reason", "bad-secret"], 1),
        (["--hardware-key", HARDWARE.hex()], 1),
        (["--csr", CSR.hex(), "--reason", "bad-secret"], 1),
        (["--request", REQUEST], 1),
        (["--request", sha256(b"1").hexdigest(), "--attestor", "join-token"], 2),
        (["--tried", TRIED.hex()], 1),
        (["--address", "192.0.2.7"], 1),
        (["--since", "1s"], 0),
        (["--until", "2h"], 0),
    ],
)
def test_refusals_are_listed_by_whatever_an_alert_names(
    watchword: Command, filled: str, filters: Sequence[str], count: int
) -> None:
    """Each field of an event is a way back to the others of its machine."""
    del filled
    assert len(result(watchword("refusals", "list", *filters, "--json"))["items"]) == count


def test_show_goes_from_the_id_in_an_alert_to_the_machine(watchword: Command, filled: str) -> None:
    """The alert has an id; the engineer wants to know who, why, and what now."""
    del filled
    for name in (str(EVENT), REQUEST, sha256(b"1").hexdigest()):
        found = result(watchword("refusals", "show", name, "--json"))
        assert found["requestSha256"] == sha256(b"1").hexdigest()
    found = result(watchword("refusals", "show", str(EVENT), "--json"))
    assert (found["code"], found["severity"], found["attack"]) == ("WJ0302", "high", True)
    assert "revoke" in found["whatToDo"]
    assert found["refusedInADay"] == {"byCsr": 2501, "byHardwareKey": 1, "byAddress": 1}
    watchword("refusals", "show", "0190163d-8694-739b-aea5-000000000000", code=3)
    watchword("refusals", "show", "the last one", code=2)


def test_top_counts_by_what_is_asked_for(watchword: Command, filled: str) -> None:
    """Where is it coming from: the first question in a storm."""
    del filled
    rows = result(watchword("refusals", "top", "--json"))["items"]
    assert [(row["what"], row["recorded"], row["published"]) for row in rows] == [
        ("join-token:expired", 2500, 1),
        ("acme-asset:no-asset", 2, 1),
        ("join-token:bad-secret", 1, 1),
    ]
    rows = result(watchword("refusals", "top", "--by", "tenant", "--limit", "1", "--json"))["items"]
    assert [(row["what"], row["recorded"]) for row in rows] == [("acme", 2502)]
    rows = result(watchword("refusals", "top", "--by", "hardware-key", "--json"))["items"]
    assert {row["what"] for row in rows} == {None, HARDWARE.hex()}


def test_an_export_has_every_row_once_and_the_same_ids_each_time(
    watchword: Command, filled: str
) -> None:
    """A SIEM that was away is filled up, and drops what it has already."""
    del filled
    exported = lines(watchword("refusals", "export").stdout)
    again = lines(watchword("refusals", "export", "--format", "native").stdout)

    assert len(exported) == 2503
    assert [event["id"] for event in exported] == [event["id"] for event in again]
    assert len({event["id"] for event in exported}) == 2503
    times = [event["time"] for event in exported]
    assert times == sorted(times)
    mine = next(event for event in exported if event["id"] == str(EVENT))
    assert JoinRefused.model_validate(mine).model_dump(by_alias=True) == mine
    assert (mine["claimedAddress"], mine["triedSha256"]) == ("192.0.2.7", TRIED.hex())


def test_every_form_is_made_of_the_same_event(watchword: Command, filled: str) -> None:
    """What is exported is what the topics have, and what the shipped pipelines make."""
    del filled
    only = ("--reason", "bad-secret")
    (native,) = lines(watchword("refusals", "export", *only).stdout)
    (ocsf,) = lines(watchword("refusals", "export", *only, "--format", "ocsf").stdout)
    (ecs,) = lines(watchword("refusals", "list", *only, "--format", "ecs").stdout)
    cef = watchword("refusals", "show", str(EVENT), "--format", "cef").stdout.rstrip("\n")

    assert ocsf == json.loads(json.dumps(to_ocsf(native)))
    assert ecs == to_ecs(native)
    assert read_cef(cef)[1]["externalId"] == str(EVENT)


async def test_an_export_takes_nobody_hostage(database: str) -> None:
    """A reader that takes for ever holds no transaction open, which would stop pruning and the relay's horizon."""
    from watchword.handlers.operators import refusals  # noqa: PLC0415

    await _fill(database)
    store = Database(database, application_name="slow-export")
    now = datetime.now(UTC)
    pages = refusals.export_refusals(
        store, refusals.RefusalFilter(since=now - timedelta(days=3)), now
    )
    assert len(await anext(pages)) == refusals.MAX_PAGE
    connection = await asyncpg.connect(database)
    open_ones = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slow-export' AND xact_start IS NOT NULL"
    )
    assert open_ones == 0
    assert sum([len(page) async for page in pages]) == 1503
    await connection.close()
    await store.close()
