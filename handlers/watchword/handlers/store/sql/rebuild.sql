-- limits
-- The check reads everything in one snapshot, for as long as it takes. A plan that was made while a rebuilt
-- table was small would read all of it for each batch once it is large, and nothing would have it made anew.
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL work_mem = '64MB'; SET LOCAL temp_buffers = '64MB'; SET LOCAL plan_cache_mode = 'force_custom_plan';

-- columns
SELECT c.relname::text AS table_name, a.attname::text AS name, t.typname::text AS type
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($1::text[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum;

-- now
SELECT watchword.now();

-- events_of_shard
-- Each shard comes in order from the index on (shard, seq): thirty-two are merged, and nothing is sorted.
SELECT seq, event_id, type, private FROM journal WHERE class = 'domain' AND shard = {shard}

-- events
SELECT event_id, type, private FROM ({union}) AS events ORDER BY seq

-- create
CREATE TEMPORARY TABLE rebuilt_{table} (LIKE {table}) ON COMMIT DROP;
ALTER TABLE rebuilt_{table} ADD PRIMARY KEY ({keys})

-- put
INSERT INTO rebuilt_{table} SELECT * FROM json_populate_recordset(NULL::rebuilt_{table}, $1::json)
ON CONFLICT ({keys}) DO UPDATE SET {changes}

-- change
UPDATE rebuilt_{table} t SET {changes} FROM json_populate_recordset(NULL::rebuilt_{table}, $1::json) n WHERE {on_key}

-- take_away
DELETE FROM rebuilt_{table} t USING json_populate_recordset(NULL::rebuilt_{table}, $1::json) n WHERE {on_key}

-- count
SELECT count(*) FROM {table} WHERE {wanted}

-- compare
WITH only_here AS MATERIALIZED (
    SELECT {columns} FROM {one} WHERE {wanted} EXCEPT ALL SELECT {columns} FROM {other} WHERE {wanted}
)
SELECT (SELECT count(*) FROM only_here) AS rows,
    ARRAY(SELECT row_to_json(sample)::text FROM (SELECT {keys} FROM only_here ORDER BY {keys} LIMIT {samples}) AS sample) AS keys
