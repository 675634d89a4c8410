-- Commands to nodes, and what became of them.
CREATE TABLE node_commands (
    id uuid PRIMARY KEY,
    node_id uuid NOT NULL REFERENCES nodes,
    tenant text NOT NULL,
    kind text NOT NULL,
    payload_sha256 bytea NOT NULL CHECK (length(payload_sha256) = 32),
    payload_bytes integer NOT NULL CHECK (payload_bytes BETWEEN 0 AND 65536),
    state text NOT NULL CHECK (state IN ('queued', 'dispatched', 'done', 'failed', 'refused', 'cancelled', 'expired')),
    version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    reason text,
    exit_status integer,
    enqueued_at timestamptz NOT NULL,
    enqueued_by text NOT NULL,
    why text NOT NULL,
    expires_at timestamptz NOT NULL,
    dispatched_at timestamptz,
    certificate_serial bytea CHECK (length(certificate_serial) = 16),
    ended_at timestamptz,
    CHECK ((state IN ('queued', 'dispatched')) = (ended_at IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX node_commands_node ON node_commands (node_id, id);
-- Few at any time; a worker looks with every request for commands.
CREATE INDEX node_commands_open ON node_commands (node_id, id) WHERE state IN ('queued', 'dispatched');
CREATE INDEX node_commands_due ON node_commands (expires_at) WHERE state IN ('queued', 'dispatched');
CREATE INDEX node_commands_ended ON node_commands (ended_at) WHERE ended_at IS NOT NULL;

-- What open commands say to their nodes. Apart from the rows that the journal describes: it goes when the command has ended,
-- and stands nowhere else. `sent_with` is the request with whose answer it was handed out last.
CREATE TABLE node_command_payloads (
    command_id uuid PRIMARY KEY REFERENCES node_commands ON DELETE CASCADE,
    payload bytea NOT NULL CHECK (octet_length(payload) <= 65536),
    sent_with bytea CHECK (length(sent_with) = 32)
);
CREATE INDEX node_command_payloads_sent ON node_command_payloads (sent_with) WHERE sent_with IS NOT NULL;

-- 6: commands were handed out, or reports taken. Not validated: every row that is there satisfies the narrower check.
ALTER TABLE inbox DROP CONSTRAINT inbox_outcome_check;
ALTER TABLE inbox ADD CONSTRAINT inbox_outcome_check CHECK (outcome BETWEEN 1 AND 6) NOT VALID;
