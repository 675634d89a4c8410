-- make
SELECT make_partitions($1);

-- days_ahead
-- How far the partitions reach of the table that has the fewest.
SELECT (extract(epoch FROM min(until) - clock_timestamp()) / 86400)::float8
FROM (
    SELECT coalesce(max(substring(pg_get_expr(child.relpartbound, child.oid) FROM $$TO \('([^']+)'\)$$)::timestamptz), 'epoch') AS until
    FROM pg_class parent LEFT JOIN pg_inherits i ON i.inhparent = parent.oid LEFT JOIN pg_class child ON child.oid = i.inhrelid
    WHERE parent.relnamespace = current_schema()::regnamespace AND parent.relname IN ('journal_domain', 'journal_refusal', 'refusals')
    GROUP BY parent.oid
) AS reach;

-- expired
-- Partitions of refusals that are past their retention, and that everybody who reads them has read to the end.
-- from_at is a bound of what a cursor has not seen; the day is for clocks that were set back.
SELECT parent.relname::text AS parent, child.relname::text AS child, i.inhdetachpending AS is_pending
FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent JOIN pg_class child ON child.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT substring(pg_get_expr(child.relpartbound, child.oid) FROM $$TO \('([^']+)'\)$$)::timestamptz AS until) AS bound
WHERE parent.relnamespace = current_schema()::regnamespace AND parent.relname IN ('journal_refusal', 'refusals')
    AND (i.inhdetachpending OR bound.until <= clock_timestamp() - make_interval(days => $1) AND bound.until + interval '1 day' <= CASE parent.relname
        WHEN 'refusals' THEN (SELECT min(from_at) FROM keeper_cursors)
        ELSE (SELECT min(from_at) FROM relay_cursors)
    END)
ORDER BY child.relname;

-- detached
-- What was detached and not dropped, because the keeper ended in between.
SELECT relname::text AS child FROM pg_class c
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ '^(journal_refusal|refusals)_[0-9]{8}$'
    AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)
ORDER BY relname;
