-- Rows as a worker sends them: one array of rows for each table, in place of one array for each column. The
-- driver looks at every element of an array, and a row is one; PostgreSQL takes them in less time too. A column
-- that a later release adds comes as another type: the last release still sends these.

CREATE TYPE inbox_claim AS (
    digest bytea, outcome smallint, node_id uuid, csr_sha256 bytea, reason text, not_after timestamptz
);

CREATE TYPE admission_claim AS (kind text, subject bytea, node_id uuid);

CREATE TYPE new_node AS (
    id uuid, tenant text, pool text, site text, role text, attestor text, token_id text, node_key_uri text,
    hardware_key text
);

CREATE TYPE new_certificate AS (
    csr_sha256 bytea, node_id uuid, serial bytea, tbs_sha256 bytea, spki_sha256 bytea, not_before timestamptz,
    not_after timestamptz, allowed_kinds text[], node_key_uri text, der bytea, who text, detail text
);

CREATE TYPE new_refusal AS (
    type text, attestor text, reason text, tenant text, role text, request_sha256 bytea, request_id text,
    csr_sha256 bytea, hardware_key_sha256 bytea, topic text, "partition" integer, "offset" bigint, published boolean
);

CREATE TYPE journal_entry AS (
    shard smallint, event_id uuid, class text, topic text, type text, key bytea, headers text, value bytea,
    private bytea, occurred_at timestamptz
);
