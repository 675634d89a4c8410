-- lock_bans
-- Exclusive: batches that run end first, and those that come wait.
SELECT pg_advisory_xact_lock($1);

-- lock_nodes
-- In the order of their ids, as workers do; before bindings.
SELECT id, tenant, pool, site, role, state, version FROM nodes WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- unbind
DELETE FROM node_bindings b
USING (
    SELECT attestor, subject FROM node_bindings WHERE node_id = ANY($1::uuid[]) ORDER BY attestor, subject FOR UPDATE
) AS locked
WHERE b.attestor = locked.attestor AND b.subject = locked.subject
RETURNING b.node_id, b.attestor, b.subject;

-- change
-- The nodes are locked.
WITH node AS (
    UPDATE nodes SET state = $2, version = version + 1, updated_at = $3 WHERE id = ANY($1::uuid[]) RETURNING *
), audited AS (
    INSERT INTO audit_log (at, who, action, target, why) SELECT $3, $4, $5, id::text, $6 FROM node ORDER BY id
)
SELECT * FROM node ORDER BY id;

-- add_bans
INSERT INTO bans (subject, kind, value, banned_at, who, why)
SELECT subject, kind, value, $4, $5, $6 FROM unnest($1::bytea[], $2::text[], $3::text[]) AS said (subject, kind, value)
ORDER BY subject
ON CONFLICT (subject) DO NOTHING
RETURNING *;

-- remove_bans
DELETE FROM bans b
USING (SELECT subject FROM bans WHERE subject = ANY($1::bytea[]) ORDER BY subject FOR UPDATE) AS locked
WHERE b.subject = locked.subject
RETURNING b.*;

-- list_bans
SELECT subject, kind, value, banned_at, who, why FROM bans
WHERE ($1::text IS NULL OR kind = $1) AND ($2::bytea IS NULL OR subject > $2)
ORDER BY subject LIMIT $3;

-- banned
SELECT subject FROM bans WHERE subject = ANY($1::bytea[]);

-- nodes_of
-- Whose these subjects are, by their digests and, for what stands in columns, by their values.
SELECT node_id FROM node_subjects WHERE subject = ANY($1::bytea[])
UNION SELECT node_id FROM node_certs WHERE tbs_sha256 = ANY($2::bytea[])
UNION SELECT node_id FROM admission_claims WHERE kind = 'key' AND subject = ANY($3::bytea[])
UNION SELECT id FROM nodes WHERE (cardinality($4::text[]) > 0 AND token_id = ANY($4)) OR (cardinality($5::text[]) > 0 AND hardware_key = ANY($5))
    OR (cardinality($6::text[]) > 0 AND node_key_uri = ANY($6)) OR (cardinality($7::text[]) > 0 AND tenant || '/' || site = ANY($7));

-- subjects_of
-- Every proven subject of nodes, and how many nodes have it. What names a place or a token is not one machine's.
SELECT s.node_id, s.kind, s.value, (SELECT count(*) FROM node_subjects o WHERE o.subject = s.subject) AS nodes
FROM node_subjects s WHERE s.node_id = ANY($1::uuid[])
UNION ALL SELECT id, 'token', token_id, 2 FROM nodes WHERE id = ANY($1) AND token_id IS NOT NULL
UNION ALL SELECT id, 'site', tenant || '/' || site, 2 FROM nodes WHERE id = ANY($1) AND site IS NOT NULL
UNION ALL SELECT id, 'hardware-key', hardware_key, 1 FROM nodes WHERE id = ANY($1) AND hardware_key IS NOT NULL
UNION ALL SELECT id, 'node-key', node_key_uri, 1 FROM nodes WHERE id = ANY($1) AND node_key_uri IS NOT NULL
UNION ALL SELECT c.node_id, 'spki', encode(a.subject, 'hex'), 1 FROM admission_claims a
    JOIN node_certs c ON a.kind = 'key' AND a.subject = c.spki_sha256 AND a.node_id = c.node_id
    WHERE c.node_id = ANY($1) GROUP BY c.node_id, a.subject
UNION ALL SELECT node_id, 'certificate', encode(tbs_sha256, 'hex'), 1 FROM node_certs WHERE node_id = ANY($1);

-- undecided
SELECT id, snapshot FROM join_requests WHERE state IN ('pending', 'approved');

-- revoked
-- RFC 5280, 3.3: an entry stays until one CRL was issued after the certificate's end.
SELECT serial, revoked_at, revoked_why FROM node_certs
WHERE revoked_at IS NOT NULL AND not_after > $1::timestamptz - interval '1 day' ORDER BY serial;

-- expiring
SELECT count(*) FROM nodes n JOIN node_certs c ON c.node_id = n.id AND c.is_current
WHERE n.state IN ('adopting', 'active') AND c.not_after <= watchword.now() + make_interval(days => $1);
