-- meet
-- Remember reasons; return those that nobody has met before.
INSERT INTO refusal_reasons_seen (attestor, reason, first_at)
SELECT attestor, reason, $3 FROM unnest($1::text[], $2::text[]) AS met (attestor, reason) ORDER BY attestor, reason
ON CONFLICT DO NOTHING RETURNING attestor, reason;

-- known
SELECT attestor, reason FROM refusal_reasons_seen;

-- groups
SELECT kind, tenant, attestor, from_snapshot::text, is_pending, quiet_until <= watchword.now() AS is_due FROM refusal_alerts;

-- is_due
SELECT EXISTS (SELECT FROM refusal_alerts WHERE is_pending AND quiet_until <= watchword.now());

-- limits
-- A storm is when there is most to look through.
SET LOCAL work_mem = '64MB'; SET LOCAL statement_timeout = '60s';

-- wait
UPDATE refusal_alerts a SET is_pending = true
FROM unnest($1::text[], $2::text[], $3::text[]) AS said (kind, tenant, attestor)
WHERE (a.kind, a.tenant, a.attestor) = (said.kind, said.tenant, said.attestor) AND NOT a.is_pending;

-- told
INSERT INTO refusal_alerts (kind, tenant, attestor, quiet_until, from_snapshot)
SELECT kind, tenant, attestor, watchword.now() + $4::interval, $5::text::pg_snapshot
FROM unnest($1::text[], $2::text[], $3::text[]) AS said (kind, tenant, attestor) ORDER BY kind, tenant, attestor
ON CONFLICT (kind, tenant, attestor) DO UPDATE
    SET quiet_until = excluded.quiet_until, from_snapshot = excluded.from_snapshot, is_pending = false;

-- find
-- What became visible of some reasons of one tenant and attestor between two snapshots, by what each is about.
WITH new AS MATERIALIZED (
    SELECT reason, request_id, occurred_at,
        CASE $6::text WHEN 'credential' THEN encode(coalesce(tried_sha256, csr_sha256, request_sha256), 'hex')
                      WHEN 'csr' THEN encode(coalesce(csr_sha256, request_sha256), 'hex')
                      ELSE encode(request_sha256, 'hex') END AS subject
    FROM refusals
    WHERE xid >= pg_snapshot_xmin($4::text::pg_snapshot) AND xid < pg_snapshot_xmax($5::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot(xid, $4::text::pg_snapshot) AND pg_visible_in_snapshot(xid, $5::text::pg_snapshot)
        AND tenant = $1 AND attestor = $2 AND reason = ANY($3::text[])
), counted AS MATERIALIZED (
    SELECT subject, count(*) AS n FROM new GROUP BY subject
)
SELECT (SELECT count(*) FROM new) AS refusals, (SELECT count(*) FROM counted) AS subjects,
    ARRAY(SELECT subject FROM counted ORDER BY n DESC, subject LIMIT 5) AS examples,
    ARRAY(SELECT request_id FROM new WHERE request_id IS NOT NULL ORDER BY occurred_at DESC LIMIT 5) AS request_ids,
    (SELECT min(reason) FROM new) AS one_reason, (SELECT max(reason) FROM new) AS other_reason,
    (SELECT min(occurred_at) FROM new) AS first_time, (SELECT max(occurred_at) FROM new) AS last_time;

-- credentials
-- Who tried at least $2 different credentials in the last $1, among the newest 50,000 refusals: by the hardware key that
-- they claim, and by the address that a gateway saw. The newest by an index, whatever there is: a filter on time inside
-- would read back through a whole day to find so many.
WITH newest AS MATERIALIZED (
    SELECT hardware_key_sha256, address, tried_sha256, request_id, occurred_at
    FROM (SELECT * FROM refusals ORDER BY xid DESC LIMIT 50000) AS last
    WHERE tried_sha256 IS NOT NULL AND occurred_at >= watchword.now() - $1::interval
), tries AS (
    SELECT 'hardware-key' AS subject_kind, encode(hardware_key_sha256, 'hex') AS subject, tried_sha256, request_id, occurred_at
    FROM newest WHERE hardware_key_sha256 IS NOT NULL
    UNION ALL SELECT 'address', address, tried_sha256, request_id, occurred_at FROM newest WHERE address IS NOT NULL
)
SELECT subject_kind, subject, count(*) AS refusals, count(DISTINCT tried_sha256) AS credentials,
    (array_agg(request_id) FILTER (WHERE request_id IS NOT NULL))[1:5] AS request_ids,
    min(occurred_at) AS first_time, max(occurred_at) AS last_time
FROM tries GROUP BY subject_kind, subject HAVING count(DISTINCT tried_sha256) >= $2
ORDER BY credentials DESC, refusals DESC, subject_kind, subject;
