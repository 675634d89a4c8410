-- Journal rows stay whole in their pages. A `node.joined` is 2.7 KB, just over the 2 KB from which PostgreSQL
-- tries to compress a row and then moves its longest part to a table and index of their own: a sixth of all that
-- PostgreSQL does for a join (measured).

CREATE OR REPLACE FUNCTION make_partitions(days_ahead integer) RETURNS integer
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
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE)%s',
                               child, parent, CASE WHEN parent LIKE 'journal%' THEN ' WITH (toast_tuple_target = 8160)' ELSE '' END);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                               parent, child, lower_bound, lower_bound + ('1 ' || step)::interval);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

DO $$
DECLARE
    child regclass;
BEGIN
    FOR child IN
        SELECT relid FROM pg_partition_tree('watchword.journal') WHERE isleaf
    LOOP
        EXECUTE format('ALTER TABLE %s SET (toast_tuple_target = 8160)', child);
    END LOOP;
END
$$;
