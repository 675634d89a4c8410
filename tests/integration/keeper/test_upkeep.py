"""Leases, pruning and partitions."""

import asyncio
import time

import pytest
from prometheus_client import REGISTRY

from tests.support.keepers import Options
from tests.support.refusals import refuse
from tests.support.waiting import until, until_true
from watchword.handlers.store import partitions
from watchword.handlers.store.connection import Connection, Database
from watchword.streams.keeper import run_keeper
from watchword.streams.keeper.keeper import Keeper

pytestmark = pytest.mark.postgres


async def test_one_keeper_works_and_the_other_takes_over_when_it_stops(
    connection: Connection, options: Options
) -> None:
    """Two keepers that summarised would tell everything twice."""
    first, second = options(name="first"), options(name="second")

    async def holder() -> str | None:
        owner: str | None = await connection.fetchval(
            "SELECT split_part(owner, '-', 1) FROM leases WHERE name = 'keeper' AND expires_at > clock_timestamp()"
        )
        return owner

    async def first_holds() -> bool:
        return await holder() == "first"

    async def second_holds() -> bool:
        return await holder() == "second"

    one = asyncio.create_task(run_keeper(first))
    await until_true(first_holds, "the first has the lease")
    other = asyncio.create_task(run_keeper(second))
    await until(lambda: not second.lifecycle.health.problems(), "who stands by is ready")
    assert await first_holds()
    assert first.lifecycle.stop is not None
    assert second.lifecycle.stop is not None
    stopped_at = time.monotonic()
    first.lifecycle.stop.set()
    await one
    assert time.monotonic() - stopped_at < 2.0
    await until_true(second_holds, "the second has the lease", within_s=1.5)
    second.lifecycle.stop.set()
    await other


async def test_a_keeper_makes_another_connection_when_it_loses_one(
    options: Options, connection: Connection
) -> None:
    """An outage of PostgreSQL must need nobody's hand afterwards."""
    made = options()
    running = asyncio.create_task(run_keeper(made))
    await until(lambda: not made.lifecycle.health.problems(), "ready")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await refuse(connection, 3)

    async def told() -> bool:
        return bool(
            await connection.fetchval("SELECT count(*) = 1 FROM journal WHERE type LIKE '%.window'")
        )

    await until_true(told, "the summary is written after the connection was lost")
    assert made.lifecycle.stop is not None
    made.lifecycle.stop.set()
    await running


async def test_old_answers_expired_uses_and_dead_relays_are_pruned(
    connection: Connection, options: Options
) -> None:
    """Tables that only grow stop a fleet in the end; what is still needed must stay."""
    await connection.execute("""
        INSERT INTO inbox (digest, outcome, at) SELECT sha256(n::text::bytea), 2, watchword.now() - make_interval(hours => n::int)
        FROM generate_series(40, 60) AS n;
        INSERT INTO inbox (digest, outcome, at) SELECT sha256(('old' || n)::bytea), 2, watchword.now() - interval '3 days'
        FROM generate_series(1, 12000) AS n;
        INSERT INTO attestation_uses (attestor, subject, node_id, expires_at) VALUES
            ('a', sha256('expired'), gen_random_uuid(), watchword.now() - interval '2 hours'),
            ('a', sha256('just'), gen_random_uuid(), watchword.now() - interval '1 minute'),
            ('a', sha256('valid'), gen_random_uuid(), watchword.now() + interval '1 minute'),
            ('a', sha256('ever'), gen_random_uuid(), NULL);
        INSERT INTO leases (name, owner, expires_at) VALUES
            ('relay:dead', 'dead', clock_timestamp() - interval '2 hours'), ('relay:live', 'live', clock_timestamp());
    """)
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    assert await connection.fetchval("SELECT count(*) FROM inbox") == 8  # 40 to 47 hours old
    kept = await connection.fetch("SELECT subject FROM attestation_uses")
    expired = await connection.fetchval("SELECT sha256('expired')")
    assert len(kept) == 3
    assert expired not in {row["subject"] for row in kept}
    names = await connection.fetch("SELECT name FROM leases ORDER BY name")
    assert [row["name"] for row in names] == ["keeper", "relay:live"]


async def test_explanations_that_nobody_fetched_are_pruned(
    connection: Connection, options: Options
) -> None:
    """A job has a sealed request in it, and an answer about a machine: neither is kept for whoever comes by."""
    await connection.execute("""
        INSERT INTO explain_jobs (id, state, asked_at, asked_by, question, expires_at) SELECT
            gen_random_uuid(), state, clock_timestamp(), state || ago, '{}', clock_timestamp() - ago::interval
        FROM unnest(ARRAY['asked', 'done']) AS state, unnest(ARRAY['2 hours', '30 minutes', '-1 minute']) AS ago
    """)
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    kept = await connection.fetch("SELECT asked_by FROM explain_jobs ORDER BY 1")
    assert [row[0] for row in kept] == [
        "asked-1 minute",
        "asked30 minutes",
        "done-1 minute",
        "done30 minutes",
    ]


async def test_pruning_waits_for_no_worker(
    connection: Connection, opened: Database, options: Options
) -> None:
    """A worker holds rows of the inbox for a whole batch; a keeper in its way would be a deadlock to come."""
    await connection.execute(
        "INSERT INTO inbox (digest, outcome, at) SELECT sha256(n::text::bytea), 2, watchword.now() - interval '3 days' "
        "FROM generate_series(1, 10) AS n"
    )
    worker = await opened.connect()
    transaction = worker.transaction()
    await transaction.start()
    await worker.execute("SELECT FROM inbox WHERE digest = sha256('1') FOR UPDATE")
    keeper = Keeper(options())
    started = time.monotonic()
    await keeper.step()
    await keeper.close(is_idle=True)
    assert time.monotonic() - started < 1.5
    assert await connection.fetchval("SELECT count(*) FROM inbox") == 1
    await transaction.rollback()
    await worker.close()


_REQUESTS = """
INSERT INTO join_requests (attestor, subject, csr_sha256, id, state, snapshot, tenant, pool, role, request_id, requested_at, expires_at)
SELECT 'image', sha256(('{state}' || n)::bytea), sha256(n::text::bytea), gen_random_uuid(), '{state}', '{{}}', 'acme', 'web', 'node', '',
    watchword.now() - interval '40 days', watchword.now() - interval '{ago}'
FROM generate_series(1, {count}) AS n
"""


async def test_joins_that_waited_too_long_expire_with_an_event_each(
    connection: Connection, options: Options
) -> None:
    """Whoever watches the waiting list must see that a machine is no longer on it."""
    for state, ago, count in (
        ("pending", "1 minute", 5003),
        ("approved", "1 hour", 2),
        ("rejected", "1 hour", 1),
    ):
        await connection.execute(_REQUESTS.format(state=state, ago=ago, count=count))
    await connection.execute(
        "UPDATE join_requests SET expires_at = watchword.now() + interval '1 day'"
        " WHERE ctid = ANY(ARRAY(SELECT ctid FROM join_requests WHERE state = 'pending' LIMIT 3))"
    )
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    states = await connection.fetch(
        "SELECT state, count(*), min(version) AS version FROM join_requests GROUP BY state ORDER BY state"
    )
    assert [tuple(row) for row in states] == [
        ("expired", 5002, 2),
        ("pending", 3, 1),
        ("rejected", 1, 1),
    ]
    assert REGISTRY.get_sample_value("watchword_waiting_joins") == 3
    oldest_s = REGISTRY.get_sample_value("watchword_oldest_waiting_join_seconds")
    assert oldest_s is not None
    assert oldest_s >= 40 * 86400
    told = await connection.fetchrow(
        "SELECT count(*) AS n, count(DISTINCT key) AS keys, count(DISTINCT xid) AS transactions,"
        " min(topic) AS topic FROM journal WHERE type = 'join.expired'"
    )
    assert told is not None
    assert dict(told) == {"n": 5002, "keys": 5002, "transactions": 2, "topic": "node.events"}


async def test_joins_that_were_decided_long_ago_are_pruned(
    connection: Connection, options: Options
) -> None:
    """The list would only grow; what can still be used, or is asked about, must stay."""
    for state in ("rejected", "expired", "consumed"):
        await connection.execute(_REQUESTS.format(state=state, ago="31 days", count=2))
        await connection.execute(_REQUESTS.format(state=state, ago="29 days", count=1).replace(
            "sha256(('", "sha256(('kept-"
        ))  # fmt: skip
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    rows = await connection.fetch("SELECT state FROM join_requests ORDER BY state")
    assert [row["state"] for row in rows] == ["consumed", "expired", "rejected"]


async def test_expiry_waits_for_no_worker(
    connection: Connection, opened: Database, options: Options
) -> None:
    """A worker that is about to consume an approval holds its row; the keeper looks again later."""
    await connection.execute(_REQUESTS.format(state="approved", ago="1 second", count=3))
    worker = await opened.connect()
    transaction = worker.transaction()
    await transaction.start()
    await worker.execute(
        "SELECT FROM join_requests WHERE csr_sha256 = sha256('1') FOR NO KEY UPDATE"
    )
    keeper = Keeper(options(upkeep_s=0.0))
    started = time.monotonic()
    await keeper.step()
    assert time.monotonic() - started < 1.5
    assert (
        await connection.fetchval("SELECT count(*) FROM join_requests WHERE state = 'expired'") == 2
    )
    await transaction.rollback()
    await worker.close()
    await keeper.step()
    await keeper.close(is_idle=True)
    assert (
        await connection.fetchval("SELECT count(*) FROM join_requests WHERE state = 'expired'") == 3
    )


_OLD = """
CREATE TABLE {parent}_20200101 (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES);
ALTER TABLE {parent} ATTACH PARTITION {parent}_20200101 FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
"""


async def _old_partitions(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE '%\\_20200101' AND relkind = 'r' ORDER BY relname"
    )
    return [row["relname"] for row in rows]


async def test_days_of_refusals_are_dropped_when_everybody_has_read_them(
    connection: Connection, options: Options
) -> None:
    """Retention must never beat the relay or the count: an event nobody has seen would be gone."""
    for parent in ("refusals", "journal_refusal"):
        await connection.execute(_OLD.format(parent=parent))
    keeper = Keeper(options(upkeep_s=0.0, lease_s=0.3))
    await keeper.step()
    # The cursors of the relay are where they were made; the keeper's own floor needs two leases.
    assert "journal_refusal_20200101" in await _old_partitions(connection)
    await connection.execute("UPDATE relay_cursors SET from_at = clock_timestamp() WHERE shard > 0")

    async def only_the_journal_is_left() -> bool:
        await keeper.step()
        return await _old_partitions(connection) == ["journal_refusal_20200101"]

    await until_true(only_the_journal_is_left, "what was counted is dropped")
    await connection.execute("UPDATE relay_cursors SET from_at = clock_timestamp()")
    await keeper.step()
    await keeper.close(is_idle=True)
    assert await _old_partitions(connection) == []


async def test_a_partition_in_use_is_left_for_later(
    opened: Database, connection: Connection
) -> None:
    """Housekeeping must not queue the fleet behind a lock."""
    await connection.execute(_OLD.format(parent="refusals"))
    await connection.execute("UPDATE keeper_cursors SET from_at = clock_timestamp()")
    reader = await opened.connect()
    transaction = reader.transaction()
    await transaction.start()
    await reader.execute("SET idle_in_transaction_session_timeout = 0")
    await reader.execute("SELECT count(*) FROM refusals")
    first = await opened.connect()
    with pytest.raises(Exception, match="LockNotAvailable"):
        await partitions.drop_expired(first, retention_days=30)
    await first.close()
    started = time.monotonic()
    await refuse(connection, 1)
    assert time.monotonic() - started < 1.0
    await transaction.rollback()
    await reader.close()
    second = await opened.connect()
    assert await partitions.drop_expired(second, retention_days=30) == ["refusals_20200101"]
    await second.close()


async def test_partitions_are_made_ahead_and_their_lack_is_an_alarm(
    connection: Connection, opened: Database, options: Options
) -> None:
    """Without a partition for its time no refusal can be recorded, and every batch fails."""
    assert 6.0 < await partitions.days_ahead(connection) <= 8.0
    assert await partitions.make(connection, days_ahead=10) > 0
    assert 9.0 < await partitions.days_ahead(connection) <= 11.0
    for name in await connection.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'refusals'::regclass"
    ):
        await connection.execute(f"DROP TABLE {name['name']}")
    assert await partitions.days_ahead(connection) < 0
    made = options(partition_days_ahead=2)
    running = asyncio.create_task(run_keeper(made))
    await until(
        lambda: "partitions" in made.lifecycle.health.problems(), "readiness names partitions"
    )
    assert made.lifecycle.stop is not None
    made.lifecycle.stop.set()
    await running
    await opened.close()


_COMMANDS = """
INSERT INTO tenants (id) VALUES ('acme') ON CONFLICT DO NOTHING;
INSERT INTO pools (tenant, id) VALUES ('acme', 'web') ON CONFLICT DO NOTHING;
INSERT INTO nodes (id, tenant, pool, role, state, attestor, joined_at, updated_at)
VALUES ('0190163d-8694-739b-aea5-966c26f8ad91', 'acme', 'web', 'node', 'active', 'join-token', now(), now()) ON CONFLICT DO NOTHING;
INSERT INTO node_commands (id, node_id, tenant, kind, payload_sha256, payload_bytes, state, enqueued_at, enqueued_by, why, expires_at, ended_at)
SELECT gen_random_uuid(), '0190163d-8694-739b-aea5-966c26f8ad91', 'acme', 'disk.wipe', sha256(''), 0, '{state}', now() - interval '40 days', 'ada', '',
    now() + interval '{expires}', now() + {ended}::interval
FROM generate_series(1, {count});
INSERT INTO node_command_payloads (command_id, payload) SELECT id, '' FROM node_commands ON CONFLICT DO NOTHING;
"""


async def test_commands_that_no_node_asked_for_in_time_expire_with_an_event_each(
    connection: Connection, options: Options
) -> None:
    """What was meant for last week must not be done next month; whoever sent it has to see that it was not."""
    for state, expires, ended, count in (
        ("queued", "-1 minute", "NULL", 3),
        ("dispatched", "-1 hour", "NULL", 2),
        ("queued", "1 hour", "NULL", 1),
        ("done", "-1 hour", "'-1 hour'", 1),
    ):
        await connection.execute(
            _COMMANDS.format(state=state, expires=expires, ended=ended, count=count)
        )
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    states = await connection.fetch(
        "SELECT state, count(*), min(version) AS version FROM node_commands GROUP BY state ORDER BY state"
    )
    assert [tuple(row) for row in states] == [("done", 1, 1), ("expired", 5, 2), ("queued", 1, 1)]
    told = await connection.fetchrow(
        "SELECT count(*) AS n, min(topic) AS topic FROM journal WHERE type = 'node.command.expired'"
    )
    assert told is not None
    assert dict(told) == {"n": 5, "topic": "node.events"}
    kept = await connection.fetchval(
        "SELECT count(*) FROM node_command_payloads JOIN node_commands ON id = command_id WHERE state = 'expired'"
    )
    assert kept == 0


async def test_commands_that_ended_long_ago_are_pruned(
    connection: Connection, options: Options
) -> None:
    """What was done last year is in the journal; the list is for what somebody asks about."""
    for ended, count in (("'-31 days'", 2), ("'-29 days'", 1)):
        await connection.execute(
            _COMMANDS.format(state="done", expires="-39 days", ended=ended, count=count)
        )
    keeper = Keeper(options())
    await keeper.step()
    await keeper.close(is_idle=True)

    assert await connection.fetchval("SELECT count(*) FROM node_commands") == 1
