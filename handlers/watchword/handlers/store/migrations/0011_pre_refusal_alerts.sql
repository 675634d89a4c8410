-- What the keeper remembers of alerts: until when one of a kind is quiet, and from which snapshot the next one counts.
CREATE TABLE refusal_alerts (
    kind text NOT NULL,
    tenant text NOT NULL,
    attestor text NOT NULL,
    quiet_until timestamptz NOT NULL,
    from_snapshot pg_snapshot NOT NULL,
    -- Something happened while it was quiet.
    is_pending boolean NOT NULL DEFAULT false,
    PRIMARY KEY (kind, tenant, attestor)
) WITH (fillfactor = 50);

-- Reasons that this deployment has met. No more than are declared.
CREATE TABLE refusal_reasons_seen (
    attestor text NOT NULL,
    reason text NOT NULL,
    first_at timestamptz NOT NULL,
    PRIMARY KEY (attestor, reason)
);
