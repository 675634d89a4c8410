-- read
SELECT r.attestor, r.subject, r.csr_sha256, r.id, r.state, r.version, r.snapshot, r.expires_at
FROM join_requests r JOIN unnest($1::text[], $2::bytea[], $3::bytea[]) AS wanted (attestor, subject, csr_sha256)
    USING (attestor, subject, csr_sha256);

-- claim
INSERT INTO join_requests (attestor, subject, csr_sha256, id, state, snapshot, tenant, pool, site, role, claims, facts, request_id, requested_at, expires_at)
SELECT attestor, subject, csr_sha256, id, 'pending', snapshot, tenant, pool, site, role, claims::jsonb, facts::jsonb, request_id, $13, $14
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
    AS claim (attestor, subject, csr_sha256, id, snapshot, tenant, pool, site, role, claims, facts, request_id)
ORDER BY attestor, subject, csr_sha256
ON CONFLICT (attestor, subject, csr_sha256) DO NOTHING
RETURNING attestor, subject, csr_sha256;

-- lock
SELECT r.attestor, r.subject, r.csr_sha256, r.id, r.state, r.version, r.snapshot, r.expires_at
FROM join_requests r JOIN unnest($1::text[], $2::bytea[], $3::bytea[]) AS wanted (attestor, subject, csr_sha256)
    USING (attestor, subject, csr_sha256)
ORDER BY r.attestor, r.subject, r.csr_sha256
FOR NO KEY UPDATE OF r;

-- lock_places
-- Two batches that add waiting joins of one tenant take turns, so that its cap is exact.
SELECT id FROM tenants WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE;

-- waiting
SELECT tenant, site, count(*)::int AS n FROM join_requests WHERE state = 'pending' AND tenant = ANY($1::text[]) GROUP BY tenant, site;

-- give_back
DELETE FROM join_requests r USING unnest($1::text[], $2::bytea[], $3::bytea[]) AS lost (attestor, subject, csr_sha256)
WHERE r.attestor = lost.attestor AND r.subject = lost.subject AND r.csr_sha256 = lost.csr_sha256;

-- renew
-- The machine asks for something else, or again after its time: it waits anew.
UPDATE join_requests r SET state = 'pending', version = r.version + 1, snapshot = said.snapshot, tenant = said.tenant, pool = said.pool,
    site = said.site, role = said.role, claims = said.claims::jsonb, facts = said.facts::jsonb, request_id = said.request_id,
    requested_at = $13, expires_at = $14, decided_at = NULL, decided_by = NULL, comment = NULL
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
    AS said (attestor, subject, csr_sha256, id, snapshot, tenant, pool, site, role, claims, facts, request_id)
WHERE r.attestor = said.attestor AND r.subject = said.subject AND r.csr_sha256 = said.csr_sha256;

-- consume
UPDATE join_requests r SET state = 'consumed', version = r.version + 1
FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS used (attestor, subject, csr_sha256)
WHERE r.attestor = used.attestor AND r.subject = used.subject AND r.csr_sha256 = used.csr_sha256;
