-- The tables of joining: who may, who did, who was refused, and the journal of it all.

CREATE SCHEMA IF NOT EXISTS watchword;

-- The clock that judges and stamps. Tests move it: ALTER DATABASE … SET watchword.clock_shift = '1 hour'.
CREATE FUNCTION watchword.now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT clock_timestamp() + coalesce(nullif(current_setting('watchword.clock_shift', true), ''), '0')::interval $$;

CREATE TABLE tenants (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    title text NOT NULL DEFAULT '' CHECK (length(title) <= 200),
    created_at timestamptz NOT NULL DEFAULT watchword.now()
);

CREATE TABLE pools (
    tenant text NOT NULL REFERENCES tenants,
    id text NOT NULL CHECK (id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    PRIMARY KEY (tenant, id)
);

CREATE TABLE sites (
    tenant text NOT NULL REFERENCES tenants,
    id text NOT NULL CHECK (id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    PRIMARY KEY (tenant, id)
);

CREATE TABLE tokens (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{16}$'),
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    uses_total integer NOT NULL CHECK (uses_total > 0),
    uses_left integer NOT NULL CHECK (uses_left >= 0),
    expires_at timestamptz,
    expect jsonb NOT NULL DEFAULT '{}',
    allow_reclaim boolean NOT NULL DEFAULT false,
    allowed_kinds text[],
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    created_by text NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
) WITH (fillfactor = 50);

CREATE TABLE nodes (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    state text NOT NULL CHECK (state IN ('adopting', 'active', 'evicted', 'banned', 'retired', 'deleted')),
    attestor text NOT NULL,
    token_id text,
    node_key_uri text,
    hardware_key text,
    generation integer NOT NULL DEFAULT 1 CHECK (generation > 0),
    joined_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
) WITH (fillfactor = 80);
CREATE INDEX nodes_tenant ON nodes (tenant, id);

CREATE TABLE node_certs (
    csr_sha256 bytea PRIMARY KEY CHECK (length(csr_sha256) = 32),
    node_id uuid NOT NULL REFERENCES nodes,
    serial bytea NOT NULL CHECK (length(serial) = 16),
    tbs_sha256 bytea NOT NULL CHECK (length(tbs_sha256) = 32),
    spki_sha256 bytea NOT NULL CHECK (length(spki_sha256) = 32),
    not_before timestamptz NOT NULL,
    not_after timestamptz NOT NULL,
    allowed_kinds text[],
    node_key_uri text,
    der bytea NOT NULL,
    is_current boolean NOT NULL DEFAULT true,
    issued_at timestamptz NOT NULL,
    revoked_at timestamptz,
    revoked_why text
) WITH (fillfactor = 90);
CREATE INDEX node_certs_node ON node_certs (node_id);
CREATE INDEX node_certs_serial ON node_certs (serial);
CREATE INDEX node_certs_tbs ON node_certs (tbs_sha256);
CREATE INDEX node_certs_revoked ON node_certs (revoked_at) WHERE revoked_at IS NOT NULL;

-- What one node has for ever: a CSR that was admitted, a public key. One conflict key for both kinds.
CREATE TABLE admission_claims (
    kind text NOT NULL CHECK (kind IN ('csr', 'key')),
    subject bytea NOT NULL CHECK (length(subject) = 32),
    node_id uuid NOT NULL,
    PRIMARY KEY (kind, subject)
);

-- The proven subjects of a node beyond its token and site, so that a ban of one finds it.
CREATE TABLE node_subjects (
    subject bytea NOT NULL CHECK (length(subject) = 32),
    node_id uuid NOT NULL,
    kind text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (subject, node_id)
);
CREATE INDEX node_subjects_node ON node_subjects (node_id);

-- No cascade from nodes: whoever deletes or retires one claims these rows first.
CREATE TABLE node_bindings (
    attestor text NOT NULL,
    subject bytea NOT NULL CHECK (length(subject) = 32),
    node_id uuid NOT NULL,
    PRIMARY KEY (attestor, subject)
);
CREATE INDEX node_bindings_node ON node_bindings (node_id);

CREATE TABLE attestation_uses (
    attestor text NOT NULL,
    subject bytea NOT NULL CHECK (length(subject) = 32),
    node_id uuid NOT NULL,
    used_at timestamptz NOT NULL DEFAULT watchword.now(),
    expires_at timestamptz,
    PRIMARY KEY (attestor, subject)
);
CREATE INDEX attestation_uses_expiry ON attestation_uses (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE bans (
    subject bytea PRIMARY KEY CHECK (length(subject) = 32),
    kind text NOT NULL,
    value text NOT NULL,
    banned_at timestamptz NOT NULL,
    who text NOT NULL,
    why text NOT NULL
);

-- The answer to request bytes, by their SHA-256: 1 joined, 2 refused, 3 deferred for an approval, 4 invalid, 5 unsupported.
CREATE TABLE inbox (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    outcome smallint NOT NULL CHECK (outcome BETWEEN 1 AND 5),
    node_id uuid,
    csr_sha256 bytea,
    reason text,
    not_after timestamptz,
    at timestamptz NOT NULL
);
-- Not BRIN: pruning frees room in every page, and new rows in old pages would make it read the whole table.
CREATE INDEX inbox_at ON inbox (at);

CREATE TABLE journal (
    event_id uuid NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    shard smallint NOT NULL CHECK (shard BETWEEN 0 AND 31),
    class text NOT NULL CHECK (class IN ('domain', 'refusal')),
    topic text,
    type text NOT NULL,
    key bytea NOT NULL,
    headers jsonb NOT NULL,
    value bytea NOT NULL,
    private bytea,
    occurred_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What is published stays under the topic's limit: refused here, never by Kafka.
    CHECK (octet_length(key) + octet_length(headers::text) + octet_length(value) < 65536)
) PARTITION BY LIST (class);
CREATE TABLE journal_domain PARTITION OF journal FOR VALUES IN ('domain') PARTITION BY RANGE (recorded_at);
CREATE TABLE journal_refusal PARTITION OF journal FOR VALUES IN ('refusal') PARTITION BY RANGE (recorded_at);
-- By xid what is new since a snapshot; by seq a backlog, in the order of publishing, without a sort.
CREATE INDEX journal_shard_xid ON journal (shard, xid);
CREATE INDEX journal_shard_seq ON journal (shard, seq);

CREATE TABLE journal_parked (
    event_id uuid PRIMARY KEY,
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    parked_at timestamptz NOT NULL,
    who text NOT NULL,
    why text NOT NULL
);

-- Rows visible in from_snapshot are published. Every other row was recorded after from_at with a seq above
-- from_seq (which spares reading what is older). Of an open batch, cut by its limit, to_snapshot is the end:
-- its rows up to last_seq are published too.
CREATE TABLE relay_cursors (
    shard smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 31),
    from_snapshot pg_snapshot NOT NULL DEFAULT '1:1:',
    from_at timestamptz NOT NULL DEFAULT '-infinity',
    from_seq bigint NOT NULL DEFAULT 0,
    to_snapshot pg_snapshot,
    last_seq bigint NOT NULL DEFAULT 0,
    owner text,
    epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO relay_cursors (shard) SELECT generate_series(0, 31);

CREATE TABLE leases (
    name text PRIMARY KEY,
    owner text NOT NULL,
    epoch bigint NOT NULL DEFAULT 1,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE refusals (
    id bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    type text NOT NULL CHECK (type IN ('refused', 'invalid')),
    attestor text NOT NULL,
    reason text NOT NULL,
    tenant text NOT NULL,
    role text,
    request_sha256 bytea NOT NULL,
    request_id text,
    csr_sha256 bytea,
    hardware_key_sha256 bytea,
    topic text NOT NULL,
    "partition" integer NOT NULL,
    "offset" bigint NOT NULL,
    worker text NOT NULL,
    published boolean NOT NULL,
    occurred_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (recorded_at);
CREATE INDEX refusals_xid ON refusals (xid);
CREATE INDEX refusals_request ON refusals (request_sha256);
CREATE INDEX refusals_csr ON refusals (csr_sha256);
CREATE INDEX refusals_time ON refusals USING brin (occurred_at);

-- Capped sliding logs: a detail may be published if a slot of its bucket is older than the window.
-- reason '*' is the bucket of all the attestor's reasons together.
CREATE TABLE refusal_slots (
    tenant text NOT NULL,
    attestor text NOT NULL,
    reason text NOT NULL,
    slot integer NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (tenant, attestor, reason, slot)
) WITH (fillfactor = 50);

-- The buckets that are suppressing: what became visible since from_snapshot is counted when the period ends.
CREATE TABLE refusal_windows (
    tenant text NOT NULL,
    attestor text NOT NULL,
    reason text NOT NULL,
    period_start timestamptz NOT NULL,
    from_snapshot pg_snapshot NOT NULL,
    recorded bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, attestor, reason)
) WITH (fillfactor = 50);

CREATE TABLE keeper_cursors (
    name text PRIMARY KEY,
    from_snapshot pg_snapshot NOT NULL DEFAULT '1:1:',
    from_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO keeper_cursors (name) VALUES ('refusals');

CREATE TABLE audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    who text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    why text NOT NULL DEFAULT '',
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_target ON audit_log (target);

-- Makes the partitions that cover yesterday to `days_ahead`; returns how many it made. Domain events are
-- kept and go by month; refusals are dropped by retention and go by day. CREATE … LIKE and ATTACH take
-- no lock that a writer would wait for.
CREATE FUNCTION make_partitions(days_ahead integer) RETURNS integer
LANGUAGE plpgsql SET search_path = watchword, pg_catalog SET timezone = 'UTC'
AS $$
DECLARE
    parent text;
    step text;
    lower_bound timestamptz;
    child text;
    made integer := 0;
BEGIN
    FOR parent, step IN VALUES ('journal_domain', 'month'), ('journal_refusal', 'day'), ('refusals', 'day') LOOP
        FOR lower_bound IN
            SELECT DISTINCT date_trunc(step, day)
            FROM generate_series(date_trunc('day', clock_timestamp()) - interval '1 day',
                                 date_trunc('day', clock_timestamp()) + make_interval(days => days_ahead), interval '1 day') AS day
            ORDER BY 1
        LOOP
            child := parent || to_char(lower_bound, CASE step WHEN 'month' THEN '"_"YYYYMM' ELSE '"_"YYYYMMDD' END);
            IF to_regclass('watchword.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE)', child, parent);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                               parent, child, lower_bound, lower_bound + ('1 ' || step)::interval);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
SELECT make_partitions(7);

-- Without an event: a rebuild starts with this row (handlers/rebuild/fold.py).
INSERT INTO tenants (id, title, created_at) VALUES ('root', 'Whoever has authenticated as nobody', 'epoch');
