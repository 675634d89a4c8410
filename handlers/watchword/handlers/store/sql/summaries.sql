-- cursor
SELECT from_snapshot::text, from_at::text FROM keeper_cursors WHERE name = 'refusals';

-- lock_cursor
SELECT from_snapshot::text, from_at::text FROM keeper_cursors WHERE name = 'refusals' FOR NO KEY UPDATE;

-- move_cursor
UPDATE keeper_cursors SET from_snapshot = $1::text::pg_snapshot, from_at = $2::text::timestamptz WHERE name = 'refusals';

-- until
SELECT pg_current_snapshot()::text AS snapshot, watchword.now() AS now;

-- is_due
-- Whether a look would find something: refusals that the cursor has not seen, or a period that is over.
SELECT EXISTS (
        SELECT FROM refusals WHERE xid >= pg_snapshot_xmax($1::text::pg_snapshot) AND recorded_at >= $2::text::timestamptz - interval '1 day'
    ) OR EXISTS (
        SELECT FROM refusals WHERE xid = ANY(ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot))) AND recorded_at >= $2::text::timestamptz - interval '1 day'
    ) OR EXISTS (
        SELECT FROM refusal_windows WHERE period_start <= watchword.now() - make_interval(secs => $3)
    );

-- last_xid
-- The transaction at which a look has to stop, if there is more than it should take.
SELECT max(xid)::text AS xid, count(*) AS n
FROM (
    SELECT xid FROM refusals
    WHERE xid >= pg_snapshot_xmax($1::text::pg_snapshot) AND recorded_at >= $2::text::timestamptz - interval '1 day'
    ORDER BY xid LIMIT $3
) AS next;

-- count
WITH bounds AS MATERIALIZED (
    SELECT until, pg_snapshot_xmax(until) AS before, pg_snapshot_xmax(seen) AS xmax, ARRAY(SELECT pg_snapshot_xip(seen)) AS running
    FROM (SELECT $1::text::pg_snapshot AS seen, $2::text::pg_snapshot AS until) AS given
)
SELECT tenant, attestor, reason, count(*) AS recorded, count(*) FILTER (WHERE NOT published) AS suppressed
FROM (
    SELECT tenant, attestor, reason, published, xid FROM refusals
    WHERE xid >= (SELECT xmax FROM bounds) AND xid < (SELECT before FROM bounds) AND recorded_at >= $3::text::timestamptz - interval '1 day'
    UNION ALL
    SELECT tenant, attestor, reason, published, xid FROM refusals
    WHERE xid = ANY((SELECT running FROM bounds)::xid8[]) AND recorded_at >= $3::text::timestamptz - interval '1 day'
) AS new
WHERE pg_visible_in_snapshot(xid, (SELECT until FROM bounds))
GROUP BY tenant, attestor, reason;

-- windows
SELECT tenant, attestor, reason, period_start, from_snapshot::text, recorded FROM refusal_windows;

-- summary_limits
-- A look counts up to 200,000 rows, also when the machine is at its limits: which is when there are so many.
SET LOCAL work_mem = '64MB'; SET LOCAL statement_timeout = '60s';

-- summarise
-- Everything that is due, in one pass over what became visible since the oldest of its snapshots.
WITH due AS MATERIALIZED (
    SELECT tenant, attestor, reason, seen::pg_snapshot AS seen
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given (tenant, attestor, reason, seen)
), bounds AS MATERIALIZED (
    SELECT $5::text::pg_snapshot AS until, pg_snapshot_xmax($5::text::pg_snapshot) AS before,
        (SELECT min(pg_snapshot_xmin(seen)) FROM due) AS oldest
)
SELECT due.tenant, due.attestor, due.reason, count(new.xid) AS recorded, count(new.xid) FILTER (WHERE new.published) AS published,
    count(DISTINCT new.csr_sha256) AS csrs, count(DISTINCT new.hardware_key_sha256) AS hardware_keys,
    min(new.occurred_at) AS first_time, max(new.occurred_at) AS last_time,
    coalesce((array_agg(new.request_id) FILTER (WHERE NOT new.published AND new.request_id IS NOT NULL))[1:5], '{}') AS request_ids
FROM due LEFT JOIN (
    SELECT * FROM refusals WHERE xid >= (SELECT oldest FROM bounds) AND xid < (SELECT before FROM bounds)
) AS new
    ON new.tenant = due.tenant AND new.attestor = due.attestor AND new.reason = due.reason
    AND NOT pg_visible_in_snapshot(new.xid, due.seen) AND pg_visible_in_snapshot(new.xid, (SELECT until FROM bounds))
GROUP BY due.tenant, due.attestor, due.reason;

-- open_windows
INSERT INTO refusal_windows (tenant, attestor, reason, period_start, from_snapshot)
SELECT tenant, attestor, reason, $4, $5::text::pg_snapshot FROM unnest($1::text[], $2::text[], $3::text[]) AS said (tenant, attestor, reason)
ORDER BY tenant, attestor, reason
ON CONFLICT (tenant, attestor, reason) DO UPDATE SET period_start = excluded.period_start, from_snapshot = excluded.from_snapshot, recorded = 0;

-- close_windows
DELETE FROM refusal_windows w USING unnest($1::text[], $2::text[], $3::text[]) AS said (tenant, attestor, reason)
WHERE w.tenant = said.tenant AND w.attestor = said.attestor AND w.reason = said.reason;

-- grow_windows
UPDATE refusal_windows w SET recorded = w.recorded + said.n
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS said (tenant, attestor, reason, n)
WHERE w.tenant = said.tenant AND w.attestor = said.attestor AND w.reason = said.reason;
