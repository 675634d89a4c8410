-- One array of rows is written in a part of the time of one array for each of their columns: the driver looks at every
-- element of an array, to see whether it is an array too.
CREATE TYPE claimed_use AS (attestor text, subject bytea, node_id uuid, expires_at timestamptz);
CREATE TYPE claimed_binding AS (attestor text, subject bytea, node_id uuid);
CREATE TYPE new_subject AS (subject bytea, node_id uuid, kind text, value text);
