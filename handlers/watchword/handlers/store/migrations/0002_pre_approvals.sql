-- Joins that wait for an operator. A row is claimed by (attestor, subject, CSR): whoever asks with another key
-- makes another row, and disturbs nobody's.

CREATE TABLE join_requests (
    attestor text NOT NULL,
    subject bytea NOT NULL CHECK (length(subject) = 32),
    csr_sha256 bytea NOT NULL CHECK (length(csr_sha256) = 32),
    id uuid NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'consumed')),
    version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    -- The exact grant, canonical JSON: what an operator agrees to is what is admitted.
    snapshot bytea NOT NULL CHECK (octet_length(snapshot) <= 16384),
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    -- What the machine says of itself, unproven, and what was proved; for the operator's eyes.
    claims jsonb NOT NULL DEFAULT '{}',
    facts jsonb NOT NULL DEFAULT '{}',
    request_id text NOT NULL,
    requested_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_at timestamptz,
    decided_by text,
    comment text,
    PRIMARY KEY (attestor, subject, csr_sha256)
) WITH (fillfactor = 80);
CREATE INDEX join_requests_id ON join_requests (id);
CREATE INDEX join_requests_waiting ON join_requests (tenant, site) WHERE state = 'pending';
CREATE INDEX join_requests_expiry ON join_requests (expires_at) WHERE state IN ('pending', 'approved');
