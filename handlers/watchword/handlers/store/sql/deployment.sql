-- clock
SELECT clock_timestamp();

-- session
SELECT name, setting FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout', 'tcp_user_timeout',
               'synchronous_commit', 'synchronous_standby_names', 'fsync', 'full_page_writes', 'server_version_num');

-- standbys
SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous, count(*) AS all_of_them FROM pg_stat_replication;

-- partitions_until
-- Up to when the partitions reach, by parent.
SELECT parent.relname AS parent, max((regexp_match(pg_get_expr(child.relpartbound, child.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz) AS until
FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid JOIN pg_class parent ON parent.oid = i.inhparent
WHERE parent.relnamespace = 'watchword'::regnamespace AND parent.relname IN ('journal_domain', 'journal_refusal', 'refusals')
GROUP BY parent.relname ORDER BY parent.relname;

-- oldest_unpublished
-- Seconds since the oldest event that no relay has published, and how many there are (at most 10,000 are counted).
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(recorded_at)), 0)::float8 AS age_s, count(*) AS rows
FROM (SELECT j.recorded_at FROM relay_cursors c JOIN journal j ON j.shard::integer = c.shard AND j.seq > c.from_seq
      WHERE j.topic IS NOT NULL AND NOT pg_visible_in_snapshot(j.xid, c.from_snapshot)
        AND (c.to_snapshot IS NULL OR j.seq > c.last_seq OR NOT pg_visible_in_snapshot(j.xid, c.to_snapshot))
        AND NOT EXISTS (SELECT 1 FROM journal_parked p WHERE p.event_id = j.event_id)
      ORDER BY j.seq LIMIT 10000) AS waiting;

-- leases
SELECT (SELECT count(*) FROM relay_cursors WHERE expires_at > clock_timestamp()) AS shards_held,
       (SELECT count(*) FROM leases WHERE expires_at > clock_timestamp()) AS leases_held;

-- ids_are_behind
-- Whether a cursor has seen transactions that this cluster has not had yet: its rows came from another one.
SELECT EXISTS (SELECT FROM relay_cursors WHERE pg_snapshot_xmax(from_snapshot) > pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT FROM keeper_cursors WHERE pg_snapshot_xmax(from_snapshot) > pg_snapshot_xmax(pg_current_snapshot()));
