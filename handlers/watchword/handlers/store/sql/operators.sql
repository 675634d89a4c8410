-- clock
SELECT watchword.now();

-- audit
INSERT INTO audit_log (at, who, action, target, why, detail) VALUES ($1, $2, $3, $4, $5, $6::jsonb);

-- create_tenant
INSERT INTO tenants (id, title, created_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING RETURNING *;

-- list_tenants
SELECT t.id, t.title, t.created_at,
       (SELECT count(*) FROM nodes n WHERE n.tenant = t.id AND n.state IN ('adopting', 'active')) AS nodes
FROM tenants t ORDER BY t.id;

-- delete_tenant
DELETE FROM tenants WHERE id = $1 RETURNING *;

-- uses_of_tenant
SELECT what, n FROM (
    SELECT 'pools' AS what, count(*) AS n FROM pools WHERE tenant = $1 UNION ALL SELECT 'sites', count(*) FROM sites WHERE tenant = $1
) AS uses WHERE n > 0;

-- create_pool
INSERT INTO pools (tenant, id, created_at) VALUES ($1, $2, $3) ON CONFLICT (tenant, id) DO NOTHING RETURNING *;

-- list_pools
SELECT tenant, id, created_at FROM pools WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant, id;

-- delete_pool
DELETE FROM pools WHERE tenant = $1 AND id = $2 RETURNING *;

-- uses_of_pool
-- Also what is over: a node that is gone says where it was, and its row stays. A join that waits would join nowhere.
SELECT what, n FROM (
    SELECT 'nodes' AS what, count(*) FILTER (WHERE state NOT IN ('retired', 'deleted')) AS n FROM nodes WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'nodes that are gone', count(*) FILTER (WHERE state IN ('retired', 'deleted')) FROM nodes WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'tokens', count(*) FROM tokens WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'images', count(*) FROM images WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'site keys', count(*) FROM discovery_sites WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'cloud accounts', count(*) FROM cloud_accounts WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'enrolled TPMs', count(*) FROM tpm_endorsements WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'TPM policies', count(*) FROM tpm_policies WHERE tenant = $1 AND pool = $2
    UNION ALL SELECT 'joins that wait', count(*) FROM join_requests WHERE tenant = $1 AND pool = $2 AND state IN ('pending', 'approved')
) AS uses WHERE n > 0;

-- uses_of_site
SELECT what, n FROM (
    SELECT 'nodes' AS what, count(*) FILTER (WHERE state NOT IN ('retired', 'deleted')) AS n FROM nodes WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'nodes that are gone', count(*) FILTER (WHERE state IN ('retired', 'deleted')) FROM nodes WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'tokens', count(*) FROM tokens WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'images', count(*) FROM images WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'site keys', count(*) FROM discovery_sites WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'cloud accounts', count(*) FROM cloud_accounts WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'enrolled TPMs', count(*) FROM tpm_endorsements WHERE tenant = $1 AND site = $2
    UNION ALL SELECT 'joins that wait', count(*) FROM join_requests WHERE tenant = $1 AND site = $2 AND state IN ('pending', 'approved')
) AS uses WHERE n > 0;

-- create_site
INSERT INTO sites (tenant, id, created_at) VALUES ($1, $2, $3) ON CONFLICT (tenant, id) DO NOTHING RETURNING *;

-- list_sites
SELECT tenant, id, created_at FROM sites WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant, id;

-- delete_site
DELETE FROM sites WHERE tenant = $1 AND id = $2 RETURNING *;

-- create_token
INSERT INTO tokens (id, secret_sha256, tenant, pool, site, role, uses_total, uses_left, expires_at, expect, allow_reclaim, allowed_kinds, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9::jsonb, $10, $11::text[], $12, $13)
RETURNING *;

-- list_tokens
-- Never the secret's hash. Newest first; a page ends where the next begins.
SELECT id, tenant, pool, site, role, uses_total, uses_left, expires_at, expect, allow_reclaim, allowed_kinds, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= watchword.now() THEN 'expired'
            WHEN uses_left = 0 THEN 'used-up' ELSE 'usable' END AS state
FROM tokens
WHERE ($1::text IS NULL OR tenant = $1)
  AND ($2::boolean OR (revoked_at IS NULL AND uses_left > 0 AND (expires_at IS NULL OR expires_at > watchword.now())))
  AND ($3::text IS NULL OR id > $3)
ORDER BY id LIMIT $4;

-- lock_token
SELECT revoked_at FROM tokens WHERE id = $1 FOR NO KEY UPDATE;

-- revoke_token
UPDATE tokens SET revoked_at = $2 WHERE id = $1 RETURNING *;

-- list_nodes
SELECT n.id, n.tenant, n.pool, n.site, n.role, n.state, n.attestor, n.token_id, n.node_key_uri, n.generation, n.version, n.joined_at, n.updated_at,
       (SELECT max(c.not_after) FROM node_certs c WHERE c.node_id = n.id AND c.is_current) AS not_after
FROM nodes n
WHERE ($1::text IS NULL OR n.tenant = $1) AND ($2::text IS NULL OR n.pool = $2) AND ($3::text IS NULL OR n.site = $3)
  AND ($4::text IS NULL OR n.role = $4) AND ($5::text IS NULL OR n.state = $5) AND ($6::uuid IS NULL OR n.id > $6)
  AND ($8::interval IS NULL OR (n.state IN ('adopting', 'active') AND EXISTS (
      SELECT FROM node_certs c WHERE c.node_id = n.id AND c.is_current AND c.not_after <= watchword.now() + $8)))
  AND ($9::uuid[] IS NULL OR n.id = ANY($9))
ORDER BY n.id LIMIT $7;

-- find_nodes
SELECT id FROM nodes
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR pool = $2) AND ($3::text IS NULL OR site = $3)
  AND ($4::text IS NULL OR role = $4) AND state = ANY($5::text[])
ORDER BY id LIMIT $6;

-- node
SELECT id, tenant, pool, site, role, state, attestor, token_id, node_key_uri, hardware_key, generation, version, joined_at, updated_at
FROM nodes WHERE id = $1;

-- node_certificates
SELECT serial, csr_sha256, spki_sha256, not_before, not_after, allowed_kinds, node_key_uri, is_current, issued_at, revoked_at, revoked_why
FROM node_certs WHERE node_id = $1 ORDER BY issued_at DESC, serial;

-- node_bindings
SELECT attestor, subject FROM node_bindings WHERE node_id = $1 ORDER BY attestor, subject;

-- node_subjects
SELECT kind, value FROM node_subjects WHERE node_id = $1 ORDER BY kind, value;

-- node_audit
SELECT at, who, action, why, detail FROM audit_log WHERE target = $1 ORDER BY id DESC LIMIT 200;
