"""What the relay's reading costs, however long the journal is."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from watchword.handlers.store.connection import Database
from watchword.handlers.store.relay import SQL, open_connection

pytestmark = pytest.mark.postgres

# Real values, because partitions are pruned by them when a plan is run.
NEWS = (
    ("smallint[]", "'{0,1,2}'"),
    ("text", "'10:10:'"),
    ("text", "'20:20:'"),
    ("text", "now()::text"),
    ("int", "2001"),
)
BACKLOG = (
    ("smallint[]", "'{0}'"),
    ("text[]", "'{10:10:}'"),
    ("text[]", "'{20:20:}'"),
    ("bigint[]", "'{0}'"),
    ("bigint[]", "'{1000}'"),
    ("text[]", "ARRAY[now()::text]"),
    ("int", "100"),
)
"""Types and values of the parameters."""


def indexes(plan: dict[str, Any]) -> set[str]:
    """Return the indexes of the journal in a plan, without the names of their partitions."""
    found: set[str] = set()
    name = plan.get("Index Name", "")
    if re.match(r"journal_(domain|refusal)_", name):
        found.add(re.sub(r"^journal_(?:domain|refusal)_\d+_", "", name))
    for part in plan.get("Plans", ()):
        found |= indexes(part)
    return found


async def planned(database: str, statement: str, parameters: Sequence[tuple[str, str]]) -> set[str]:
    """Return the indexes that a relay reads by, planned as it plans: for any arguments, before there is a row."""
    connection = await open_connection(Database(database, application_name="relay-test"))
    try:
        # As an operator may at any time, also while the next month's partition has no rows.
        await connection.execute("ANALYZE journal")
        types, values = (", ".join(column) for column in zip(*parameters, strict=True))
        await connection.execute(f"PREPARE reading ({types}) AS {statement}")
        rows = await connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE reading ({values})")
    finally:
        await connection.close()
    return indexes(json.loads(rows[0][0])[0]["Plan"])


async def test_news_are_read_by_transaction_also_when_planned_over_an_empty_journal(
    database: str,
) -> None:
    """By seq, each look would read the whole journal: the plan is kept while the journal grows."""
    assert await planned(database, SQL.news, NEWS) == {"shard_xid_idx"}


async def test_a_backlog_is_read_in_the_order_of_publishing(database: str) -> None:
    """By transaction, each wave would sort all that waits."""
    (index,) = await planned(database, SQL.backlog, BACKLOG)
    assert "seq" in index
