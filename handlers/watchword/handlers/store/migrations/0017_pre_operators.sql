-- Who may use the API and the console. Secrets are ours, 256 bits, and only their SHA-256 is here.

CREATE TABLE operator_tokens (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{16}$'),
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    -- A tenant, or root: the whole deployment.
    scope text NOT NULL REFERENCES tenants,
    role text NOT NULL CHECK (role IN ('viewer', 'approver', 'admin')),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamptz
);

-- Links that let somebody in once.
CREATE TABLE operator_links (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{16}$'),
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    who text NOT NULL,
    scope text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'approver', 'admin')),
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);

CREATE TABLE operator_sessions (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{16}$'),
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    who text NOT NULL,
    scope text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'approver', 'admin')),
    -- The token that opened it, which ends it when it is revoked.
    token_id text REFERENCES operator_tokens ON DELETE CASCADE,
    opened_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX operator_sessions_expiry ON operator_sessions (expires_at);
