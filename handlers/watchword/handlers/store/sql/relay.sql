-- before_mark
-- What a mark pairs with a transaction id; read in a statement before the id is assigned.
-- A sequence that was never called says 1, and will give 1.
SELECT clock_timestamp()::text AS at, CASE WHEN is_called THEN last_value ELSE 0 END AS seq FROM journal_seq_seq;

-- show
-- Say that this relay lives. The id is that of this transaction.
INSERT INTO leases (name, owner, expires_at)
VALUES ('relay:' || $1, $1, clock_timestamp() + make_interval(secs => $2))
ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at
RETURNING pg_current_xact_id()::text AS xid;

-- live
SELECT count(*) FROM leases WHERE name LIKE 'relay:%' AND expires_at > clock_timestamp();

-- renew
-- Only what has not expired: an expired lease is taken anew, with another epoch.
WITH mine AS MATERIALIZED (
    SELECT shard FROM relay_cursors WHERE owner = $1 AND expires_at > clock_timestamp() ORDER BY shard FOR NO KEY UPDATE
)
UPDATE relay_cursors c SET expires_at = clock_timestamp() + make_interval(secs => $2)
FROM mine WHERE c.shard = mine.shard
RETURNING c.shard, c.epoch, c.from_snapshot::text AS from_snapshot, c.from_at::text AS from_at, c.from_seq,
    c.to_snapshot::text AS to_snapshot, c.last_seq;

-- give_up
UPDATE relay_cursors SET owner = NULL, expires_at = '-infinity' WHERE owner = $1 AND shard = ANY($2::smallint[]);

-- take
WITH free AS MATERIALIZED (
    SELECT shard FROM relay_cursors WHERE expires_at <= clock_timestamp() ORDER BY shard LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE relay_cursors c SET owner = $1, epoch = c.epoch + 1, expires_at = clock_timestamp() + make_interval(secs => $2)
FROM free WHERE c.shard = free.shard
RETURNING c.shard, c.epoch, c.from_snapshot::text AS from_snapshot, c.from_at::text AS from_at, c.from_seq,
    c.to_snapshot::text AS to_snapshot, c.last_seq;

-- leave
WITH gone AS (DELETE FROM leases WHERE name = 'relay:' || $1)
UPDATE relay_cursors SET owner = NULL, expires_at = '-infinity' WHERE owner = $1;

-- look
-- The snapshot, and a seq that no transaction visible in it exceeds.
SELECT pg_current_snapshot()::text AS snapshot, last_value AS seq FROM journal_seq_seq;

-- news
-- What became visible between two snapshots that are close together, in no order: two ranges of (shard, xid),
-- so that a transaction which runs for long costs nothing.
WITH bounds AS MATERIALIZED (
    SELECT seen, until, pg_snapshot_xmax(seen) AS xmax, ARRAY(SELECT pg_snapshot_xip(seen)) AS running
    FROM (SELECT $2::text::pg_snapshot AS seen, $3::text::pg_snapshot AS until) AS given
)
SELECT n.shard, n.seq, n.event_id, n.topic, n.key, n.headers, n.value, n.recorded_at
FROM (
    SELECT * FROM journal
    WHERE shard = ANY($1::smallint[]) AND xid >= (SELECT xmax FROM bounds)
        AND recorded_at >= $4::text::timestamptz - interval '1 day'
    UNION ALL
    SELECT * FROM journal
    WHERE shard = ANY($1::smallint[]) AND xid = ANY((SELECT running FROM bounds)::xid8[])
        AND recorded_at >= $4::text::timestamptz - interval '1 day'
) AS n
WHERE n.topic IS NOT NULL AND pg_visible_in_snapshot(n.xid, (SELECT until FROM bounds))
    AND NOT EXISTS (SELECT FROM journal_parked p WHERE p.event_id = n.event_id)
LIMIT $5;

-- backlog
-- The next rows of each shard in the order of seq, however many follow: no sort, whatever the backlog.
WITH cursor AS MATERIALIZED (
    SELECT shard, from_snapshot::pg_snapshot AS seen, to_snapshot::pg_snapshot AS until, after_seq, up_to_seq,
        from_at::timestamptz - interval '1 day' AS from_at
    FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
        AS given (shard, from_snapshot, to_snapshot, after_seq, up_to_seq, from_at)
)
SELECT n.shard, n.seq, n.event_id, n.topic, n.key, n.headers, n.value, n.recorded_at
FROM cursor CROSS JOIN LATERAL (
    SELECT * FROM journal j
    WHERE j.shard::integer = cursor.shard AND j.seq > cursor.after_seq AND j.seq <= cursor.up_to_seq
        AND j.recorded_at >= cursor.from_at AND j.topic IS NOT NULL
        AND NOT pg_visible_in_snapshot(j.xid, cursor.seen) AND pg_visible_in_snapshot(j.xid, cursor.until)
        AND NOT EXISTS (SELECT FROM journal_parked p WHERE p.event_id = j.event_id)
    ORDER BY j.seq LIMIT $7
) AS n
ORDER BY n.shard, n.seq;

-- move
-- The fence: who lost the lease, by time or to another, moves nothing.
UPDATE relay_cursors c
SET from_snapshot = said.from_snapshot::pg_snapshot, from_at = said.from_at::timestamptz, from_seq = said.from_seq,
    to_snapshot = said.to_snapshot::pg_snapshot, last_seq = said.last_seq
FROM unnest($2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[])
    AS said (shard, epoch, from_snapshot, from_at, from_seq, to_snapshot, last_seq)
WHERE c.shard = said.shard AND c.owner = $1 AND c.epoch = said.epoch AND c.expires_at > clock_timestamp()
RETURNING c.shard;

-- pending
-- Of all shards, whoever owns them. In the order of xid, which is nearly that of time; at most $1 rows of each shard are counted.
WITH cursor AS MATERIALIZED (
    SELECT shard, to_snapshot, last_seq, pg_snapshot_xmax(from_snapshot) AS xmax, ARRAY(SELECT pg_snapshot_xip(from_snapshot)) AS running,
        from_at - interval '1 day' AS from_at
    FROM relay_cursors
)
SELECT coalesce(sum(waiting.n), 0)::bigint AS pending, coalesce(bool_or(waiting.n >= $1), false) AS is_capped,
    coalesce(extract(epoch FROM clock_timestamp() - min(waiting.oldest)), 0)::float8 AS oldest_seconds
FROM cursor CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(recorded_at) AS oldest
    FROM (
        SELECT j.recorded_at
        FROM (
            SELECT event_id, seq, xid, topic, recorded_at FROM journal
            WHERE shard = cursor.shard AND xid = ANY(cursor.running::xid8[]) AND recorded_at >= cursor.from_at
            UNION ALL
            SELECT event_id, seq, xid, topic, recorded_at FROM journal
            WHERE shard = cursor.shard AND xid >= cursor.xmax AND recorded_at >= cursor.from_at
        ) AS j
        WHERE j.topic IS NOT NULL
            AND (cursor.to_snapshot IS NULL OR j.seq > cursor.last_seq OR NOT pg_visible_in_snapshot(j.xid, cursor.to_snapshot))
            AND NOT EXISTS (SELECT FROM journal_parked p WHERE p.event_id = j.event_id)
        LIMIT $1
    ) AS counted
) AS waiting;

-- unpublished
-- One row that is not published yet, among the next 1,000 of its shard: the one that blocks is the very next.
-- The journal has no index on event ids, and needs none.
SELECT n.seq, n.shard, n.topic, n.type
FROM relay_cursors c CROSS JOIN LATERAL (
    SELECT * FROM journal j
    WHERE j.shard::integer = c.shard AND j.seq > greatest(c.from_seq, c.last_seq) AND j.recorded_at >= c.from_at - interval '1 day' AND j.topic IS NOT NULL
        AND NOT pg_visible_in_snapshot(j.xid, c.from_snapshot)
        AND NOT EXISTS (SELECT FROM journal_parked p WHERE p.event_id = j.event_id)
    ORDER BY j.seq LIMIT 1000
) AS n
WHERE n.event_id = $1;

-- park
INSERT INTO journal_parked (event_id, seq, shard, parked_at, who, why) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id;

-- parked
SELECT event_id FROM journal_parked WHERE event_id = $1;

-- now
SELECT watchword.now();

-- audit
INSERT INTO audit_log (at, who, action, target, why, detail) VALUES ($1, $2, 'journal.park', $3, $4, $5::jsonb);

-- list_parked
SELECT event_id, seq, shard, parked_at, who, why FROM journal_parked ORDER BY parked_at, event_id;
