-- tenants_of_nodes
SELECT id, tenant FROM nodes WHERE id = ANY($1::uuid[]);

-- tenants_of_requests
SELECT id, tenant FROM join_requests WHERE id = ANY($1::uuid[]);

-- tenant_of_token
SELECT tenant FROM tokens WHERE id = $1;

-- tenant_of_grant
SELECT tenant FROM reclaim_grants WHERE id = $1;

-- tenant_of_command
SELECT tenant FROM node_commands WHERE id = $1;

-- nodes_known_by
-- Whatever names a machine: the beginning of its node's id; a proven subject; a certificate's serial, its key or the SHA-256 of its CSR;
-- its hardware key, node key or token. Only the last three have no index: they read the nodes' table, and nothing bigger.
SELECT id FROM nodes WHERE $2::uuid IS NOT NULL AND id BETWEEN $2::uuid AND $3::uuid
UNION SELECT node_id FROM node_subjects WHERE subject = ANY($4::bytea[])
UNION SELECT node_id FROM node_certs WHERE csr_sha256 = $5::bytea
UNION SELECT node_id FROM node_certs WHERE serial = $5::bytea
UNION SELECT node_id FROM admission_claims WHERE kind = 'key' AND subject = $5::bytea
UNION SELECT id FROM nodes WHERE hardware_key = $1 OR node_key_uri = $1 OR token_id = $1
ORDER BY 1 LIMIT 1000;

-- audit
-- Newest first.
SELECT id, at, who, action, target, why, detail FROM audit_log
WHERE ($1::text IS NULL OR who = $1) AND ($2::text IS NULL OR action = $2) AND ($3::text IS NULL OR target = $3)
  AND ($4::bigint IS NULL OR id < $4)
ORDER BY id DESC LIMIT $5;

-- overview
-- Node ids are of time (UUIDv7), so those of the last hour are a range of the key.
SELECT (SELECT count(*) FROM join_requests WHERE state = 'pending' AND ($1::text IS NULL OR tenant = $1)) AS waiting,
       (SELECT min(requested_at) FROM join_requests WHERE state = 'pending' AND ($1::text IS NULL OR tenant = $1)) AS oldest_waiting,
       (SELECT max(requested_at) FROM join_requests WHERE state = 'pending' AND ($1::text IS NULL OR tenant = $1)) AS newest_waiting,
       (SELECT count(*) FROM nodes WHERE id >= $2::uuid AND ($1::text IS NULL OR tenant = $1)) AS joined,
       (SELECT count(*) FROM nodes n JOIN node_certs c ON c.node_id = n.id AND c.is_current
        WHERE n.state IN ('adopting', 'active') AND c.not_after <= watchword.now() + interval '1 day'
          AND ($1::text IS NULL OR n.tenant = $1)) AS certificates_ending;

-- node_states
SELECT state, count(*) AS nodes FROM nodes WHERE $1::text IS NULL OR tenant = $1 GROUP BY state ORDER BY state;

-- refused_lately
-- In twelve parts of the last hour, the oldest first; recorded_at bounds the partitions.
WITH counted AS (
    SELECT least(floor(extract(epoch FROM occurred_at - ($2::timestamptz - interval '1 hour')) / 300), 11)::int AS part,
           count(*) AS refused, count(*) FILTER (WHERE NOT published) AS suppressed
    FROM refusals
    WHERE recorded_at >= $2::timestamptz - interval '1 hour' AND occurred_at > $2::timestamptz - interval '1 hour'
      AND ($1::text IS NULL OR tenant = $1)
    GROUP BY 1
)
SELECT part, coalesce(refused, 0) AS refused, coalesce(suppressed, 0) AS suppressed
FROM generate_series(0, 11) AS p (part) LEFT JOIN counted USING (part) ORDER BY part;

-- joined_lately
WITH counted AS (
    SELECT least(greatest(floor(extract(epoch FROM joined_at - ($2::timestamptz - interval '1 hour')) / 300), 0), 11)::int AS part, count(*) AS joined
    FROM nodes WHERE id >= $3::uuid AND ($1::text IS NULL OR tenant = $1) GROUP BY 1
)
SELECT part, coalesce(joined, 0) AS joined FROM generate_series(0, 11) AS p (part) LEFT JOIN counted USING (part) ORDER BY part;

-- attestor_rates
SELECT attestor, sum(joined)::bigint AS joined, sum(refused)::bigint AS refused, sum(waiting)::bigint AS waiting FROM (
    SELECT attestor, count(*) AS joined, 0 AS refused, 0 AS waiting FROM nodes WHERE id >= $3::uuid AND ($1::text IS NULL OR tenant = $1) GROUP BY attestor
    UNION ALL
    SELECT attestor, 0, count(*), 0 FROM refusals WHERE recorded_at >= $2::timestamptz - interval '1 hour'
      AND occurred_at > $2::timestamptz - interval '1 hour' AND ($1::text IS NULL OR tenant = $1) GROUP BY attestor
    UNION ALL
    SELECT attestor, 0, 0, count(*) FROM join_requests WHERE state = 'pending' AND ($1::text IS NULL OR tenant = $1) GROUP BY attestor
) AS every GROUP BY attestor ORDER BY attestor;
