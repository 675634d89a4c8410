-- A refusal has the id of its event whether that is published or not: what is exported later is the same event.
-- Rows of the last release have none of these; it still writes by the type `new_refusal`.
ALTER TABLE refusals
    ADD COLUMN event_id uuid,
    -- Which credential was tried, hashed; and the address that a gateway saw, unproven.
    ADD COLUMN tried_sha256 bytea,
    ADD COLUMN address text;
-- From the id in an alert to the row. UUIDv7 comes in order, so the index grows at one end.
CREATE INDEX refusals_event ON refusals (event_id);

CREATE TYPE refusal_row AS (
    type text, attestor text, reason text, tenant text, role text, request_sha256 bytea, request_id text,
    csr_sha256 bytea, hardware_key_sha256 bytea, topic text, "partition" integer, "offset" bigint, published boolean,
    event_id uuid, tried_sha256 bytea, address text
);
