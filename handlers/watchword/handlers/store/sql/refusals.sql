-- list
-- Newest first. recorded_at bounds the partitions that are looked at: a row is recorded after it happened.
SELECT id, type, attestor, reason, tenant, role, request_id, request_sha256, csr_sha256, hardware_key_sha256,
       topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address
FROM refusals
WHERE recorded_at >= $1 AND occurred_at >= $1 AND ($2::timestamptz IS NULL OR occurred_at < $2)
  AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR attestor = $4) AND ($5::text IS NULL OR reason = $5)
  AND ($6::bytea IS NULL OR csr_sha256 = $6) AND ($7::bytea IS NULL OR hardware_key_sha256 = $7)
  AND ($8::text IS NULL OR request_id = $8) AND ($9::bytea IS NULL OR request_sha256 = $9)
  AND ($10::text IS NULL OR address = $10) AND ($11::bytea IS NULL OR tried_sha256 = $11)
  AND ($12::bigint IS NULL OR (occurred_at, id) < ($13::timestamptz, $12))
ORDER BY occurred_at DESC, id DESC LIMIT $14;

-- page
-- Oldest first, from behind a row: how an export reads, without a transaction that lasts as long as its reader takes.
SELECT id, type, attestor, reason, tenant, role, request_id, request_sha256, csr_sha256, hardware_key_sha256,
       topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address
FROM refusals
WHERE recorded_at >= $1 AND occurred_at >= $1 AND ($2::timestamptz IS NULL OR occurred_at < $2)
  AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR attestor = $4) AND ($5::text IS NULL OR reason = $5)
  AND ($6::bytea IS NULL OR csr_sha256 = $6) AND ($7::bytea IS NULL OR hardware_key_sha256 = $7)
  AND ($8::text IS NULL OR request_id = $8) AND ($9::bytea IS NULL OR request_sha256 = $9)
  AND ($10::text IS NULL OR address = $10) AND ($11::bytea IS NULL OR tried_sha256 = $11)
  AND ($12::bigint IS NULL OR (occurred_at, id) > ($13::timestamptz, $12))
ORDER BY occurred_at, id LIMIT $14;

-- find
-- By the id of its event, by its own number, or by the bytes or id of the request; the newest.
SELECT id, type, attestor, reason, tenant, role, request_id, request_sha256, csr_sha256, hardware_key_sha256,
       topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address
FROM refusals
WHERE ($1::uuid IS NULL OR event_id = $1) AND ($2::bigint IS NULL OR id = $2)
  AND ($3::bytea IS NULL OR request_sha256 = $3) AND ($4::text IS NULL OR request_id = $4)
ORDER BY occurred_at DESC, id DESC LIMIT 1;

-- nodes_of_csr
-- The node that this CSR, or the machine's later ones, led to.
SELECT n.id, n.tenant, n.pool, n.site, n.state, n.attestor, n.joined_at
FROM node_certs c JOIN nodes n ON n.id = c.node_id WHERE c.csr_sha256 = $1;

-- same_machine
-- How often the same CSR, the same claimed hardware key and the same address were refused since.
SELECT count(*) FILTER (WHERE csr_sha256 = $2) AS by_csr, count(*) FILTER (WHERE hardware_key_sha256 = $3) AS by_hardware_key,
       count(*) FILTER (WHERE address = $4) AS by_address
FROM refusals WHERE recorded_at >= $1 AND occurred_at >= $1 AND (csr_sha256 = $2 OR hardware_key_sha256 = $3 OR address = $4);

-- top
SELECT $12::text AS by, CASE $12::text
           WHEN 'reason' THEN attestor || ':' || reason WHEN 'attestor' THEN attestor WHEN 'tenant' THEN tenant
           WHEN 'hardware-key' THEN encode(hardware_key_sha256, 'hex') WHEN 'csr' THEN encode(csr_sha256, 'hex')
           WHEN 'tried' THEN encode(tried_sha256, 'hex') WHEN 'address' THEN address WHEN 'worker' THEN worker
       END AS what,
       count(*) AS recorded, count(*) FILTER (WHERE published) AS published, count(DISTINCT csr_sha256) AS distinct_csrs,
       count(DISTINCT hardware_key_sha256) AS distinct_hardware_keys, min(occurred_at) AS first_time, max(occurred_at) AS last_time
FROM refusals
WHERE recorded_at >= $1 AND occurred_at >= $1 AND ($2::timestamptz IS NULL OR occurred_at < $2)
  AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR attestor = $4) AND ($5::text IS NULL OR reason = $5)
  AND ($6::bytea IS NULL OR csr_sha256 = $6) AND ($7::bytea IS NULL OR hardware_key_sha256 = $7)
  AND ($8::text IS NULL OR request_id = $8) AND ($9::bytea IS NULL OR request_sha256 = $9)
  AND ($10::text IS NULL OR address = $10) AND ($11::bytea IS NULL OR tried_sha256 = $11)
GROUP BY 2 ORDER BY recorded DESC, what LIMIT $13;

-- snapshot
SELECT pg_current_snapshot()::text;

-- since
-- What became visible between two snapshots: a transaction that ended late is not passed over.
SELECT id, type, attestor, reason, tenant, role, request_id, request_sha256, csr_sha256, hardware_key_sha256,
       topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address
FROM refusals
WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND xid < pg_snapshot_xmax($2::text::pg_snapshot)
  AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot) AND pg_visible_in_snapshot(xid, $2::text::pg_snapshot)
  AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR attestor = $4) AND ($5::text IS NULL OR reason = $5)
  AND ($6::bytea IS NULL OR csr_sha256 = $6) AND ($7::bytea IS NULL OR hardware_key_sha256 = $7)
  AND ($8::text IS NULL OR address = $8) AND ($9::bytea IS NULL OR tried_sha256 = $9)
ORDER BY occurred_at, id;
