-- What an operator lets a machine take back, once: this node, by this proof.
CREATE TABLE reclaim_grants (
    id uuid PRIMARY KEY,
    node_id uuid NOT NULL REFERENCES nodes,
    tenant text NOT NULL,
    attestor text NOT NULL,
    subject bytea NOT NULL CHECK (length(subject) = 32),
    kind text NOT NULL,
    value text NOT NULL,
    state text NOT NULL CHECK (state IN ('open', 'used', 'revoked')),
    expires_at timestamptz NOT NULL,
    granted_at timestamptz NOT NULL,
    granted_by text NOT NULL,
    why text NOT NULL,
    used_at timestamptz,
    used_by bytea CHECK (length(used_by) = 32)
);
-- Few at any time; a worker looks whether there are any with every batch.
CREATE INDEX reclaim_grants_open ON reclaim_grants (subject) WHERE state = 'open';
CREATE INDEX reclaim_grants_node ON reclaim_grants (node_id);
