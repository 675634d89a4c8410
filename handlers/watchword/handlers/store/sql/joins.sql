-- look
-- The time that judges the attempt, and what is known of digests and CSRs, in one query. It also
-- writes down that these digests are going to be judged, unless no worker is named.
WITH begun AS (
    INSERT INTO judging (worker, slot, incarnation, digests, begun_at)
    SELECT $3::text, $4::smallint, $5::uuid, $1::bytea[], watchword.now() WHERE $3::text IS NOT NULL
    ON CONFLICT (worker, slot) DO UPDATE
        SET incarnation = excluded.incarnation, digests = excluded.digests, begun_at = excluded.begun_at
)
SELECT 'now' AS kind, NULL::bytea AS subject, NULL::smallint AS outcome, NULL::uuid AS node_id,
       NULL::bytea AS csr_sha256, NULL::text AS reason, watchword.now() AS not_after
UNION ALL
SELECT 'inbox', digest, outcome, node_id, csr_sha256, reason, not_after FROM inbox WHERE digest = ANY($1::bytea[])
UNION ALL
SELECT kind, subject, NULL, node_id, NULL, NULL, NULL FROM admission_claims
WHERE kind = 'csr' AND subject = ANY($2::bytea[])
UNION ALL
(SELECT 'grants', NULL, NULL, NULL, NULL, NULL, NULL FROM reclaim_grants WHERE state = 'open' LIMIT 1);

-- admissions
-- The admissions of CSRs, whatever became of them since.
SELECT c.csr_sha256, c.node_id, c.serial, c.der, c.not_before, c.not_after, c.allowed_kinds, c.is_current, c.revoked_at IS NOT NULL AS revoked,
       n.tenant, n.pool, n.site, n.role, n.state
FROM node_certs c JOIN nodes n ON n.id = c.node_id
WHERE c.csr_sha256 = ANY($1::bytea[]);

-- read_tokens
SELECT id, secret_sha256, tenant, pool, site, role, uses_left, expires_at, revoked_at IS NOT NULL AS revoked, allow_reclaim, allowed_kinds, expect
FROM tokens WHERE id = ANY($1::text[]);

-- read_nodes
SELECT id, tenant, pool, site, role, state, attestor, node_key_uri, hardware_key, generation, version
FROM nodes WHERE id = ANY($1::uuid[]);

-- read_bindings
SELECT b.attestor, b.subject, b.node_id
FROM node_bindings b JOIN unnest($1::text[], $2::bytea[]) AS wanted (attestor, subject) USING (attestor, subject);

-- claim_inbox
-- Sorted, before all else. An expired deferral may be judged anew; what does not come back is somebody else's.
INSERT INTO inbox (digest, outcome, node_id, csr_sha256, reason, not_after, at)
SELECT digest, outcome, node_id, csr_sha256, reason, not_after, $2
FROM unnest($1::inbox_claim[])
ORDER BY digest
ON CONFLICT (digest) DO UPDATE
    SET outcome = excluded.outcome, node_id = excluded.node_id, csr_sha256 = excluded.csr_sha256,
        reason = excluded.reason, not_after = excluded.not_after, at = excluded.at
    WHERE inbox.not_after <= $2
RETURNING digest;

-- read_inbox
SELECT digest, outcome, node_id, csr_sha256, reason, not_after FROM inbox WHERE digest = ANY($1::bytea[]);

-- lock_tokens
SELECT id, uses_left, expires_at, revoked_at IS NOT NULL AS revoked
FROM tokens WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE;

-- lock_nodes
SELECT id, tenant, pool, site, role, state, attestor, node_key_uri, hardware_key, generation, version
FROM nodes WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- lock_node_bindings
SELECT attestor, subject, node_id FROM node_bindings WHERE node_id = ANY($1::uuid[]);

-- claim_admissions
INSERT INTO admission_claims (kind, subject, node_id)
SELECT kind, subject, node_id FROM unnest($1::admission_claim[])
ORDER BY kind, subject
ON CONFLICT (kind, subject) DO NOTHING
RETURNING kind, subject;

-- holders_of_admissions
SELECT c.kind, c.subject, c.node_id
FROM admission_claims c JOIN unnest($1::text[], $2::bytea[]) AS lost (kind, subject) USING (kind, subject);

-- claim_uses
-- What has expired may be used again.
INSERT INTO attestation_uses (attestor, subject, node_id, used_at, expires_at)
SELECT attestor, subject, node_id, $2, expires_at FROM unnest($1::claimed_use[])
ORDER BY attestor, subject
ON CONFLICT (attestor, subject) DO UPDATE
    SET node_id = excluded.node_id, used_at = excluded.used_at, expires_at = excluded.expires_at
    WHERE attestation_uses.expires_at <= $2
RETURNING attestor, subject;

-- claim_bindings
INSERT INTO node_bindings (attestor, subject, node_id)
SELECT attestor, subject, node_id FROM unnest($1::claimed_binding[])
ORDER BY attestor, subject
ON CONFLICT (attestor, subject) DO NOTHING
RETURNING attestor, subject;

-- banned
SELECT subject FROM bans WHERE subject = ANY($1::bytea[]);

-- give_back_admissions
DELETE FROM admission_claims c USING unnest($1::text[], $2::bytea[]) AS lost (kind, subject)
WHERE c.kind = lost.kind AND c.subject = lost.subject;

-- give_back_uses
DELETE FROM attestation_uses u USING unnest($1::text[], $2::bytea[]) AS lost (attestor, subject)
WHERE u.attestor = lost.attestor AND u.subject = lost.subject;

-- give_back_bindings
DELETE FROM node_bindings b USING unnest($1::text[], $2::bytea[]) AS lost (attestor, subject)
WHERE b.attestor = lost.attestor AND b.subject = lost.subject;

-- give_back_inbox
DELETE FROM inbox WHERE digest = ANY($1::bytea[]);

-- correct_admissions
UPDATE admission_claims c SET node_id = won.node_id
FROM unnest($1::text[], $2::bytea[], $3::uuid[]) AS won (kind, subject, node_id)
WHERE c.kind = won.kind AND c.subject = won.subject;

-- correct_uses
UPDATE attestation_uses u SET node_id = won.node_id, expires_at = won.expires_at
FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::timestamptz[]) AS won (attestor, subject, node_id, expires_at)
WHERE u.attestor = won.attestor AND u.subject = won.subject;

-- correct_bindings
UPDATE node_bindings b SET node_id = won.node_id
FROM unnest($1::text[], $2::bytea[], $3::uuid[]) AS won (attestor, subject, node_id)
WHERE b.attestor = won.attestor AND b.subject = won.subject;

-- correct_inbox
UPDATE inbox i SET outcome = said.outcome, node_id = said.node_id, reason = said.reason, not_after = said.not_after
FROM unnest($1::bytea[], $2::smallint[], $3::uuid[], $4::text[], $5::timestamptz[]) AS said (digest, outcome, node_id, reason, not_after)
WHERE i.digest = said.digest;

-- supersede
-- The certificates that a re-key replaces. Their nodes are locked.
UPDATE node_certs SET is_current = false, revoked_at = coalesce(revoked_at, $2), revoked_why = coalesce(revoked_why, $3)
WHERE csr_sha256 IN (SELECT csr_sha256 FROM node_certs WHERE node_id = ANY($1::uuid[]) AND is_current ORDER BY csr_sha256 FOR NO KEY UPDATE)
RETURNING node_id, csr_sha256;

-- rekey
UPDATE nodes n SET state = 'adopting', attestor = said.attestor, token_id = said.token_id,
    node_key_uri = said.node_key_uri, hardware_key = coalesce(said.hardware_key, n.hardware_key),
    generation = n.generation + 1, version = n.version + 1, updated_at = $2
FROM unnest($1::new_node[]) AS said
WHERE n.id = said.id;

-- write
-- Everything that can conflict with nobody: spends under their locks, nodes, certificates, audit rows.
WITH spend AS (
    UPDATE tokens t SET uses_left = t.uses_left - spent.n
    FROM unnest($1::text[], $2::int[]) AS spent (id, n) WHERE t.id = spent.id
), node AS (
    INSERT INTO nodes (id, tenant, pool, site, role, state, attestor, token_id, node_key_uri, hardware_key, joined_at, updated_at)
    SELECT id, tenant, pool, site, role, 'adopting', attestor, token_id, node_key_uri, hardware_key, $5, $5
    FROM unnest($3::new_node[])
), certificate AS (
    INSERT INTO node_certs (csr_sha256, node_id, serial, tbs_sha256, spki_sha256, not_before, not_after, allowed_kinds, node_key_uri, der, issued_at)
    SELECT csr_sha256, node_id, serial, tbs_sha256, spki_sha256, not_before, not_after, allowed_kinds, node_key_uri, der, $5
    FROM unnest($4::new_certificate[])
)
INSERT INTO audit_log (at, who, action, target, detail)
SELECT $5, who, 'node.join', node_id::text, detail::jsonb
FROM unnest($4::new_certificate[]);

-- write_subjects
INSERT INTO node_subjects (subject, node_id, kind, value)
SELECT subject, node_id, kind, value FROM unnest($1::new_subject[])
ORDER BY subject, node_id
ON CONFLICT (subject, node_id) DO NOTHING;

-- write_refusals
INSERT INTO refusals (type, attestor, reason, tenant, role, request_sha256, request_id, csr_sha256, hardware_key_sha256,
    topic, "partition", "offset", worker, published, occurred_at, event_id, tried_sha256, address)
SELECT type, attestor, reason, tenant, role, request_sha256, request_id, csr_sha256, hardware_key_sha256,
    topic, "partition", "offset", $2, published, $3, event_id, tried_sha256, address
FROM unnest($1::refusal_row[]);
