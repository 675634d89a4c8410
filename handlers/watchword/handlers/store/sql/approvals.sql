-- list_requests
-- By id, which is by age. A page ends where the next begins.
SELECT attestor, csr_sha256, id, state, version, snapshot, tenant, pool, site, role, claims, facts, request_id, requested_at, expires_at, decided_at, decided_by, comment
FROM join_requests
WHERE ($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR site = $3)
  AND ($4::text IS NULL OR attestor = $4) AND ($5::uuid IS NULL OR id > $5)
  AND ($7::text IS NULL OR pool = $7) AND ($8::text IS NULL OR starts_with(encode(csr_sha256, 'hex'), $8))
ORDER BY id LIMIT $6;

-- requests
SELECT attestor, csr_sha256, id, state, version, snapshot, tenant, pool, site, role, claims, facts, request_id, requested_at, expires_at, decided_at, decided_by, comment
FROM join_requests WHERE id = ANY($1::uuid[]);

-- request_audit
SELECT at, who, action, why FROM audit_log WHERE target = $1 ORDER BY id DESC LIMIT 50;

-- lock_requests
-- In the order of the key, as workers and the keeper do.
SELECT id, state, version, expires_at FROM join_requests WHERE id = ANY($1::uuid[])
ORDER BY attestor, subject, csr_sha256 FOR NO KEY UPDATE;

-- decide
UPDATE join_requests SET state = $2, version = version + 1, decided_at = $3, decided_by = $4, comment = $5
WHERE id = ANY($1::uuid[]) RETURNING *;

-- lock_due
-- SKIP LOCKED: the keeper waits for nobody. What others hold is looked at again, changed or not.
WITH due AS MATERIALIZED (
    SELECT attestor, subject, csr_sha256 FROM join_requests
    WHERE state IN ('pending', 'approved') AND expires_at <= $1 ORDER BY expires_at LIMIT $2
)
SELECT r.attestor, r.subject, r.csr_sha256 FROM join_requests r JOIN due USING (attestor, subject, csr_sha256)
WHERE r.state IN ('pending', 'approved') AND r.expires_at <= $1
ORDER BY r.attestor, r.subject, r.csr_sha256 FOR NO KEY UPDATE OF r SKIP LOCKED;

-- expire
UPDATE join_requests r SET state = 'expired', version = r.version + 1
FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS late (attestor, subject, csr_sha256)
WHERE r.attestor = late.attestor AND r.subject = late.subject AND r.csr_sha256 = late.csr_sha256
RETURNING r.*;
