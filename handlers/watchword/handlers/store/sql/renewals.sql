-- read
-- A certificate with its node, as of one moment: between two reads somebody else may renew. A re-key of the node, or
-- a renewal from the certificate, is seen by the node's version under its lock.
SELECT c.csr_sha256, c.serial, c.tbs_sha256, c.spki_sha256, c.not_before, c.not_after, c.allowed_kinds, c.node_key_uri AS statement, c.is_current,
       c.revoked_at IS NOT NULL AS revoked, c.contested_at IS NOT NULL AS contested, s.spki_sha256 AS successor_spki,
       n.id, n.tenant, n.pool, n.site, n.role, n.state, n.attestor, n.node_key_uri, n.hardware_key, n.generation, n.version
FROM node_certs c JOIN nodes n ON n.id = c.node_id LEFT JOIN node_certs s ON s.csr_sha256 = c.renewed_by
WHERE c.tbs_sha256 = ANY($1::bytea[]);

-- renew
-- The nodes are locked, and with them their certificates.
WITH superseded AS (
    UPDATE node_certs c SET is_current = false, renewed_by = said.renewed_by
    FROM unnest($2::bytea[], $3::bytea[]) AS said (csr_sha256, renewed_by) WHERE c.csr_sha256 = said.csr_sha256
), node AS (
    UPDATE nodes n SET state = 'active', version = n.version + 1, updated_at = $4
    FROM unnest($1::new_certificate[]) AS said WHERE n.id = said.node_id
), certificate AS (
    INSERT INTO node_certs (csr_sha256, node_id, serial, tbs_sha256, spki_sha256, not_before, not_after, allowed_kinds, node_key_uri, der, issued_at)
    SELECT csr_sha256, node_id, serial, tbs_sha256, spki_sha256, not_before, not_after, allowed_kinds, node_key_uri, der, $4
    FROM unnest($1::new_certificate[])
)
INSERT INTO audit_log (at, who, action, target, detail)
SELECT $4, who, 'node.renew', node_id::text, detail::jsonb FROM unnest($1::new_certificate[]);

-- contest
UPDATE node_certs SET contested_at = $2 WHERE csr_sha256 = ANY($1::bytea[]) AND contested_at IS NULL RETURNING csr_sha256;

-- revoke
-- What may still be used, or would still speak for its node. The nodes are locked.
UPDATE node_certs SET revoked_at = $2, revoked_why = $3
WHERE csr_sha256 IN (
    SELECT csr_sha256 FROM node_certs WHERE node_id = ANY($1::uuid[]) AND revoked_at IS NULL AND (not_after > $2 OR is_current)
    ORDER BY csr_sha256 FOR NO KEY UPDATE
)
RETURNING node_id, csr_sha256, serial, not_after;

-- evict
WITH node AS (
    UPDATE nodes SET state = 'evicted', version = version + 1, updated_at = $2 WHERE id = ANY($1::uuid[]) RETURNING id
)
INSERT INTO audit_log (at, who, action, target, why) SELECT $2, $3, 'node.evict', id::text, $4 FROM node;
