-- create_token
INSERT INTO operator_tokens (id, secret_sha256, name, scope, role, expires_at, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *;

-- list_tokens
-- Never the secret's hash.
SELECT id, name, scope, role, expires_at, created_at, created_by, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= watchword.now() THEN 'expired' ELSE 'usable' END AS state
FROM operator_tokens
WHERE ($1::boolean OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > watchword.now()))) AND ($2::text IS NULL OR id > $2)
ORDER BY id LIMIT $3;

-- lock_token
SELECT revoked_at FROM operator_tokens WHERE id = $1 FOR NO KEY UPDATE;

-- revoke_token
UPDATE operator_tokens SET revoked_at = $2 WHERE id = $1 RETURNING *;

-- token
SELECT secret_sha256, name, scope, role FROM operator_tokens
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > watchword.now());

-- admit_certificate
-- A name has one row. Of one who was taken out or has expired nothing is left but what is written here.
WITH ended AS (
    DELETE FROM operator_sessions s USING operator_tokens t
    WHERE t.id = $1 AND s.token_id = t.id AND (t.revoked_at IS NOT NULL OR t.expires_at <= $7::timestamptz))
INSERT INTO operator_tokens (id, secret_sha256, name, scope, role, expires_at, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO UPDATE SET scope = EXCLUDED.scope, role = EXCLUDED.role, expires_at = EXCLUDED.expires_at,
    created_at = EXCLUDED.created_at, created_by = EXCLUDED.created_by, revoked_at = NULL
WHERE operator_tokens.secret_sha256 = EXCLUDED.secret_sha256
  AND (operator_tokens.revoked_at IS NOT NULL OR operator_tokens.expires_at <= EXCLUDED.created_at)
RETURNING *;

-- certificates
SELECT id, secret_sha256, name, scope, role FROM operator_tokens
WHERE id = ANY($1::text[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > watchword.now());

-- add_link
INSERT INTO operator_links (id, secret_sha256, who, scope, role, expires_at) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;

-- lock_link
SELECT secret_sha256, who, scope, role FROM operator_links
WHERE id = $1 AND used_at IS NULL AND expires_at > watchword.now() FOR NO KEY UPDATE;

-- use_link
UPDATE operator_links SET used_at = watchword.now() WHERE id = $1;

-- open_session
INSERT INTO operator_sessions (id, secret_sha256, who, scope, role, token_id, opened_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- session
SELECT s.secret_sha256, s.who, s.scope, s.role, s.expires_at, t.id AS token_id, t.name AS token_name FROM operator_sessions s LEFT JOIN operator_tokens t ON t.id = s.token_id
WHERE s.id = $1 AND s.expires_at > watchword.now()
  AND (s.token_id IS NULL OR (t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > watchword.now())));

-- close_session
DELETE FROM operator_sessions WHERE id = $1;

-- forget
-- What is over; a few rows each time somebody signs in. Who signed in stays in the audit log.
WITH links AS (DELETE FROM operator_links WHERE expires_at <= $1::timestamptz - interval '1 day')
DELETE FROM operator_sessions WHERE expires_at <= $1;
