-- read
SELECT id, node_id, attestor, subject, expires_at FROM reclaim_grants WHERE state = 'open' AND subject = ANY($1::bytea[]) ORDER BY id;

-- lock
SELECT id, node_id, attestor, subject, expires_at FROM reclaim_grants WHERE state = 'open' AND id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- use
UPDATE reclaim_grants g SET state = 'used', used_at = $3, used_by = said.csr_sha256
FROM unnest($1::uuid[], $2::bytea[]) AS said (id, csr_sha256) WHERE g.id = said.id;

-- use_holders
SELECT u.attestor, u.subject, u.node_id
FROM attestation_uses u JOIN unnest($1::text[], $2::bytea[]) AS lost (attestor, subject) USING (attestor, subject);

-- unbind
-- What a reclaimed node was bound to before, and is no more. The nodes are locked.
DELETE FROM node_bindings b
USING (
    SELECT o.attestor, o.subject FROM node_bindings o
    WHERE o.node_id = ANY($1::uuid[])
      AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::bytea[]) AS kept (attestor, subject) WHERE kept.attestor = o.attestor AND kept.subject = o.subject)
    ORDER BY o.attestor, o.subject FOR UPDATE
) AS locked
WHERE b.attestor = locked.attestor AND b.subject = locked.subject
RETURNING b.node_id, b.attestor, b.subject;

-- forget_hardware
-- A reclaim by a proof without a hardware key: the node has none any more.
UPDATE nodes SET hardware_key = NULL WHERE id = ANY($1::uuid[]);

-- add
INSERT INTO reclaim_grants (id, node_id, tenant, attestor, subject, kind, value, state, expires_at, granted_at, granted_by, why)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9, $10, $11) RETURNING *;

-- list
SELECT id, node_id, tenant, attestor, kind, value, expires_at, granted_at, granted_by, why, used_at,
       CASE WHEN state = 'open' AND expires_at <= watchword.now() THEN 'expired' ELSE state END AS state
FROM reclaim_grants
WHERE ($1::uuid IS NULL OR node_id = $1) AND ($2::boolean OR (state = 'open' AND expires_at > watchword.now())) AND ($3::uuid IS NULL OR id > $3)
ORDER BY id LIMIT $4;

-- lock_one
SELECT id, state FROM reclaim_grants WHERE id = $1 FOR NO KEY UPDATE;

-- revoke
UPDATE reclaim_grants SET state = 'revoked' WHERE id = $1 RETURNING *;
