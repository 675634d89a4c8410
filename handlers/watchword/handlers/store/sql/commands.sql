-- open_of
-- Which of these nodes have commands that are not over.
SELECT node_id, count(*) AS n FROM node_commands WHERE node_id = ANY($1::uuid[]) AND state IN ('queued', 'dispatched') GROUP BY node_id;

-- lock
-- What is not over of locked nodes, and what they speak of, each with the node's certificate that is in force now.
SELECT m.id, m.node_id, m.tenant, m.kind, m.payload_sha256, m.payload_bytes, m.state, m.version, m.reason, m.exit_status, m.enqueued_at, m.enqueued_by,
       m.why, m.expires_at, m.dispatched_at, m.certificate_serial, m.ended_at, p.payload, c.serial, c.allowed_kinds
FROM node_commands m
LEFT JOIN node_command_payloads p ON p.command_id = m.id
LEFT JOIN node_certs c ON c.node_id = m.node_id AND c.is_current AND c.revoked_at IS NULL
WHERE m.node_id = ANY($1::uuid[]) AND (m.state IN ('queued', 'dispatched') OR m.id = ANY($2::uuid[]))
ORDER BY m.id FOR NO KEY UPDATE OF m;

-- change
-- The rows are locked. What has ended says nothing to its node any more.
WITH said AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::integer[], $6::timestamptz[], $7::bytea[], $8::timestamptz[])
        AS said (id, state, version, reason, exit_status, dispatched_at, certificate_serial, ended_at)
), forgotten AS (
    DELETE FROM node_command_payloads p USING said WHERE p.command_id = said.id AND said.ended_at IS NOT NULL
)
UPDATE node_commands m
SET state = said.state, version = said.version, reason = said.reason, exit_status = said.exit_status, dispatched_at = said.dispatched_at,
    certificate_serial = said.certificate_serial, ended_at = said.ended_at
FROM said WHERE m.id = said.id;

-- mark_sent
UPDATE node_command_payloads p SET sent_with = said.digest
FROM unnest($1::uuid[], $2::bytea[]) AS said (id, digest) WHERE p.command_id = said.id;

-- sent_with
-- What requests that come again were answered with, as far as it still may be said.
SELECT p.sent_with, m.id, m.node_id, m.kind, m.expires_at, p.payload, c.serial, c.allowed_kinds
FROM node_command_payloads p
JOIN node_commands m ON m.id = p.command_id
JOIN nodes n ON n.id = m.node_id
JOIN node_certs c ON c.node_id = n.id AND c.is_current AND c.revoked_at IS NULL
WHERE p.sent_with = ANY($1::bytea[]) AND m.state = 'dispatched' AND m.expires_at > watchword.now()
  AND n.state IN ('adopting', 'active') AND c.not_after > watchword.now()
ORDER BY m.id;

-- activate
WITH node AS (
    UPDATE nodes SET state = 'active', version = version + 1, updated_at = $2 WHERE id = ANY($1::uuid[]) RETURNING id
)
INSERT INTO audit_log (at, who, action, target, why) SELECT $2, 'node:' || id, 'node.activate', id::text, $3 FROM node ORDER BY id;

-- standing
-- The certificate of a locked node that is in force.
SELECT serial, allowed_kinds FROM node_certs WHERE node_id = $1 AND is_current AND revoked_at IS NULL AND not_after > watchword.now();

-- add
INSERT INTO node_commands (id, node_id, tenant, kind, payload_sha256, payload_bytes, state, version, reason, enqueued_at, enqueued_by, why, expires_at, ended_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $11, $12, $13);

-- add_payload
INSERT INTO node_command_payloads (command_id, payload) VALUES ($1, $2);

-- count_open
SELECT count(*) FROM node_commands WHERE node_id = $1 AND state IN ('queued', 'dispatched');

-- list
SELECT id, node_id, tenant, kind, payload_sha256, payload_bytes, state, version, reason, exit_status, enqueued_at, enqueued_by, why, expires_at,
       dispatched_at, certificate_serial, ended_at
FROM node_commands
WHERE ($1::uuid IS NULL OR node_id = $1) AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR state = $3) AND ($4::text IS NULL OR kind = $4)
  AND ($5::uuid IS NULL OR id > $5)
ORDER BY id LIMIT $6;

-- show
SELECT id, node_id, tenant, kind, payload_sha256, payload_bytes, state, version, reason, exit_status, enqueued_at, enqueued_by, why, expires_at,
       dispatched_at, certificate_serial, ended_at
FROM node_commands WHERE id = $1;

-- node_of
SELECT node_id FROM node_commands WHERE id = $1;

-- lock_due
-- SKIP LOCKED: the keeper waits for nobody. What others hold is looked at again, changed or not.
SELECT id, node_id, tenant, kind, payload_sha256, payload_bytes, state, version, reason, exit_status, enqueued_at, enqueued_by, why, expires_at,
       dispatched_at, certificate_serial, ended_at
FROM node_commands WHERE state IN ('queued', 'dispatched') AND expires_at <= $1
ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED;

-- prune
WITH old AS MATERIALIZED (
    SELECT id FROM node_commands WHERE ended_at < watchword.now() - make_interval(secs => $1) ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM node_commands m USING old WHERE m.id = old.id;

-- waiting
SELECT state, count(*) AS n FROM node_commands WHERE state IN ('queued', 'dispatched') GROUP BY state;
