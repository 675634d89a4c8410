-- create_image
INSERT INTO images (id, secret_sha256, tenant, pool, site, role, second_fact, once_per_machine, allowed_kinds, expect, expires_at, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text[], $10::jsonb, $11, $12, $13)
ON CONFLICT (id) DO NOTHING RETURNING *;

-- list_images
-- Never the secret's hash.
SELECT id, tenant, pool, site, role, second_fact, once_per_machine, allowed_kinds, expect, expires_at, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= watchword.now() THEN 'expired' ELSE 'usable' END AS state
FROM images
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR id > $2)
  AND ($3::boolean OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > watchword.now())))
ORDER BY id LIMIT $4;

-- lock_image
SELECT revoked_at FROM images WHERE id = $1 FOR NO KEY UPDATE;

-- revoke_image
UPDATE images SET revoked_at = $2 WHERE id = $1 RETURNING *;

-- create_site_key
INSERT INTO discovery_sites (kid, public_key, tenant, site, pool, approval, allowed_kinds, expires_at, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7::text[], $8, $9, $10)
ON CONFLICT (kid) DO NOTHING RETURNING *;

-- list_site_keys
SELECT kid, public_key, tenant, site, pool, approval, allowed_kinds, expires_at, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= watchword.now() THEN 'expired' ELSE 'usable' END AS state
FROM discovery_sites
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR kid > $2)
  AND ($3::boolean OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > watchword.now())))
ORDER BY kid LIMIT $4;

-- lock_site_key
SELECT revoked_at FROM discovery_sites WHERE kid = $1 FOR NO KEY UPDATE;

-- revoke_site_key
UPDATE discovery_sites SET revoked_at = $2 WHERE kid = $1 RETURNING *;

-- create_cloud_account
INSERT INTO cloud_accounts (provider, account, tenant, pool, site, role, regions, approval, allowed_kinds, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7::text[], $8, $9::text[], $10, $11)
ON CONFLICT (provider, account) DO NOTHING RETURNING *;

-- list_cloud_accounts
SELECT provider, account, tenant, pool, site, role, regions, approval, allowed_kinds, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' ELSE 'usable' END AS state
FROM cloud_accounts
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR provider || '/' || account > $2) AND ($3::boolean OR revoked_at IS NULL)
ORDER BY provider || '/' || account LIMIT $4;

-- get_cloud_account
SELECT provider, account, tenant, pool, site, role, regions, approval, allowed_kinds, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' ELSE 'usable' END AS state
FROM cloud_accounts WHERE provider = $1 AND account = $2;

-- delete_cloud_account
DELETE FROM cloud_accounts WHERE provider = $1 AND account = $2 RETURNING *;

-- lock_cloud_account
SELECT revoked_at FROM cloud_accounts WHERE provider = $1 AND account = $2 FOR NO KEY UPDATE;

-- revoke_cloud_account
UPDATE cloud_accounts SET revoked_at = $3 WHERE provider = $1 AND account = $2 RETURNING *;

-- enrol_tpms
INSERT INTO tpm_endorsements (ek_sha256, tenant, pool, site, role, allowed_kinds, note, created_at, created_by, approval)
SELECT ek_sha256, $3, $4, $5, $6, $7::text[], note, $8, $9, $10
FROM unnest($1::bytea[], $2::text[]) AS said (ek_sha256, note)
ORDER BY ek_sha256
ON CONFLICT (ek_sha256) DO NOTHING RETURNING *;

-- list_tpms
SELECT ek_sha256, tenant, pool, site, role, allowed_kinds, coalesce(approval, false) AS approval, note, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' ELSE 'usable' END AS state
FROM tpm_endorsements
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::bytea IS NULL OR ek_sha256 > $2) AND ($3::boolean OR revoked_at IS NULL)
ORDER BY ek_sha256 LIMIT $4;

-- lock_tpm
SELECT revoked_at FROM tpm_endorsements WHERE ek_sha256 = $1 FOR NO KEY UPDATE;

-- revoke_tpm
UPDATE tpm_endorsements SET revoked_at = $2 WHERE ek_sha256 = $1 RETURNING *;

-- lock_tpm_policy
SELECT policy FROM tpm_policies WHERE tenant = $1 AND pool = $2 FOR NO KEY UPDATE;

-- set_tpm_policy
INSERT INTO tpm_policies (tenant, pool, policy, updated_at, updated_by) VALUES ($1, $2, $3::jsonb, $4, $5)
ON CONFLICT (tenant, pool) DO UPDATE SET policy = excluded.policy, updated_at = excluded.updated_at, updated_by = excluded.updated_by
RETURNING *;

-- list_tpm_policies
SELECT tenant, pool, policy, updated_at, updated_by FROM tpm_policies WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant, pool;

-- delete_tpm_policy
DELETE FROM tpm_policies WHERE tenant = $1 AND pool = $2 RETURNING *;
