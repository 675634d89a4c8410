-- images
SELECT id, secret_sha256, tenant, pool, site, role, second_fact, once_per_machine, allowed_kinds, expect, expires_at, revoked_at IS NOT NULL AS revoked
FROM images WHERE id = ANY($1::text[]);

-- discovery_sites
SELECT kid, public_key, tenant, site, pool, approval, allowed_kinds, expires_at, revoked_at IS NOT NULL AS revoked
FROM discovery_sites WHERE kid = ANY($1::text[]);

-- cloud_accounts
SELECT a.provider, a.account, a.tenant, a.pool, a.site, a.role, a.regions, a.approval, a.allowed_kinds, a.revoked_at IS NOT NULL AS revoked
FROM cloud_accounts a JOIN unnest($1::text[], $2::text[]) AS wanted (provider, account) USING (provider, account);

-- tpm_endorsements
SELECT ek_sha256, tenant, pool, site, role, allowed_kinds, coalesce(approval, false) AS approval, revoked_at IS NOT NULL AS revoked
FROM tpm_endorsements WHERE ek_sha256 = ANY($1::bytea[]);

-- tpm_policies
SELECT p.tenant, p.pool, p.policy FROM tpm_policies p JOIN unnest($1::text[], $2::text[]) AS wanted (tenant, pool) USING (tenant, pool);

-- certificates
-- Certificates by the SHA-256 of their TBS, with the node that each was issued for.
SELECT c.tbs_sha256, c.node_id, c.spki_sha256, c.not_before, c.not_after, c.allowed_kinds, c.node_key_uri, c.is_current, c.revoked_at IS NOT NULL AS revoked
FROM node_certs c WHERE c.tbs_sha256 = ANY($1::bytea[]);

-- nodes_by_subject
-- The nodes of which a subject was proven; the newest first.
SELECT s.subject, s.node_id FROM node_subjects s JOIN nodes n ON n.id = s.node_id
WHERE s.subject = ANY($1::bytea[]) AND n.state IN ('adopting', 'active', 'evicted') ORDER BY n.joined_at DESC, s.node_id;
