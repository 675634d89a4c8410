-- find
-- Nodes that are gone, or of a subject, whatever became of them.
SELECT n.id, n.state, n.version FROM nodes n
WHERE ($1::uuid[] IS NULL OR n.id = ANY($1))
  AND ($2::text IS NULL OR (n.tenant = $2 AND n.state IN ('retired', 'deleted')))
  AND ($3::interval IS NULL OR (n.updated_at < watchword.now() - $3 AND n.state IN ('retired', 'deleted')))
  AND ($4::bytea IS NULL OR n.id IN (
      SELECT node_id FROM node_subjects WHERE subject = $4
      UNION SELECT node_id FROM admission_claims WHERE kind = 'key' AND subject = $4
      UNION SELECT id FROM nodes WHERE sha256(convert_to(hardware_key, 'UTF8')) = $4
  ))
  AND ($5::boolean OR n.hardware_key IS NOT NULL OR n.node_key_uri IS NOT NULL
      OR EXISTS (SELECT FROM node_subjects s WHERE s.node_id = n.id) OR EXISTS (SELECT FROM node_certs c WHERE c.node_id = n.id AND c.der <> ''))
ORDER BY n.id LIMIT $6;

-- counts
SELECT (SELECT count(*) FROM node_subjects WHERE node_id = ANY($1::uuid[])) AS subjects,
       (SELECT count(*) FROM node_certs WHERE node_id = ANY($1::uuid[]) AND der <> '') AS certificates,
       (SELECT count(*) FROM reclaim_grants WHERE node_id = ANY($1::uuid[]) AND value <> 'purged') AS reclaim_grants,
       (SELECT count(*) FROM join_requests r WHERE r.state IN ('rejected', 'expired', 'consumed') AND r.snapshot <> '{}'
            AND r.csr_sha256 IN (SELECT csr_sha256 FROM node_certs WHERE node_id = ANY($1::uuid[]))) AS join_requests,
       (SELECT count(*) FROM refusals f WHERE (f.address IS NOT NULL OR f.hardware_key_sha256 IS NOT NULL)
            AND f.csr_sha256 IN (SELECT csr_sha256 FROM node_certs WHERE node_id = ANY($1::uuid[]))) AS refusals;

-- limits
-- One pass over the journal; it may take minutes, and nobody waits for nodes that are gone.
SET LOCAL statement_timeout = '600s'; SET LOCAL idle_in_transaction_session_timeout = '600s';

-- csrs
SELECT csr_sha256 FROM node_certs WHERE node_id = ANY($1::uuid[]) ORDER BY csr_sha256;

-- banned_subjects
SELECT b.subject FROM bans b JOIN node_subjects s ON s.subject = b.subject WHERE s.node_id = ANY($1::uuid[]);

-- lock_requests
SELECT id FROM join_requests WHERE csr_sha256 = ANY($1::bytea[]) AND state IN ('rejected', 'expired', 'consumed')
ORDER BY attestor, subject, csr_sha256 FOR NO KEY UPDATE;

-- events
SELECT event_id, recorded_at, type, convert_from(value, 'UTF8') AS value, convert_from(private, 'UTF8') AS private
FROM journal WHERE class = 'domain' AND (key = ANY($1::bytea[]) OR (type = 'join.waiting' AND convert_from(private, 'UTF8')::jsonb #>> '{row,csr_sha256}' = ANY($2::text[])
    AND convert_from(private, 'UTF8')::jsonb #>> '{row,id}' <> ALL($3::text[])));

-- waiting_still
-- Joins that are not decided keep what an operator has to see.
SELECT id::text FROM join_requests WHERE csr_sha256 = ANY($1::bytea[]) AND state IN ('pending', 'approved');

-- redact_events
UPDATE journal j SET value = said.value, private = said.private
FROM unnest($1::uuid[], $2::timestamptz[], $3::bytea[], $4::bytea[]) AS said (event_id, recorded_at, value, private)
WHERE j.class = 'domain' AND j.event_id = said.event_id AND j.recorded_at = said.recorded_at;

-- subjects
DELETE FROM node_subjects WHERE node_id = ANY($1::uuid[]);

-- certificates
UPDATE node_certs SET der = '', node_key_uri = NULL WHERE node_id = ANY($1::uuid[]);

-- grants
UPDATE reclaim_grants SET value = 'purged' WHERE node_id = ANY($1::uuid[]);

-- requests
UPDATE join_requests SET claims = '{}', facts = '{}', snapshot = '{}' WHERE id = ANY($1::uuid[]);

-- refusals
UPDATE refusals SET address = NULL, hardware_key_sha256 = NULL WHERE csr_sha256 = ANY($1::bytea[]);

-- bans
-- The digest stays, and with it the ban.
UPDATE bans SET value = 'purged' WHERE subject = ANY($1::bytea[]);

-- audit
UPDATE audit_log SET detail = detail || '{"value": "purged"}' WHERE target = ANY($1::text[]) AND detail ? 'value';

-- nodes
UPDATE nodes SET hardware_key = NULL, node_key_uri = NULL, version = version + 1, updated_at = $2 WHERE id = ANY($1::uuid[]) RETURNING *;
