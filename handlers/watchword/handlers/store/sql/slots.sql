-- lacking
-- The buckets that have not all their slots; $4 and $5 as below. It waits for nobody.
SELECT tenant, attestor, reason FROM unnest($1::text[], $2::text[], $3::text[]) AS bucket (tenant, attestor, reason)
WHERE NOT EXISTS (SELECT FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = bucket.reason
    AND s.slot = CASE bucket.reason WHEN '*' THEN $5::int ELSE $4::int END);

-- make
-- Give buckets their slots; $4 is how many a bucket of one reason has, $5 one of all reasons ('*'). A slot that is there is
-- left out beforehand: ON CONFLICT alone would wait for whoever is just claiming it.
INSERT INTO refusal_slots (tenant, attestor, reason, slot)
SELECT tenant, attestor, reason, slot
FROM unnest($1::text[], $2::text[], $3::text[]) AS bucket (tenant, attestor, reason),
    generate_series(1, CASE reason WHEN '*' THEN $5::int ELSE $4::int END) AS slot
WHERE NOT EXISTS (SELECT FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = bucket.reason AND s.slot = slot.slot)
ORDER BY tenant, attestor, reason, slot
ON CONFLICT DO NOTHING;

-- claim
-- Take the oldest slots that are out of the window, all that the batch needs, in one statement. Materialized, because
-- under a nested loop LIMIT would run once for each row. Slots 1 to $6 of a reason are outside the bucket of all reasons.
-- $7 and $8 are the limits of one reason and of all: rows beyond them are left from when a limit was greater.
WITH need AS MATERIALIZED (
    SELECT tenant, attestor, reason, n FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS q (tenant, attestor, reason, n)
), candidate AS MATERIALIZED (
    SELECT free.tenant, free.attestor, free.reason, free.slot,
           row_number() OVER (PARTITION BY free.tenant, free.attestor, free.reason ORDER BY free.slot) AS nth
    FROM need CROSS JOIN LATERAL (
        SELECT tenant, attestor, reason, slot FROM refusal_slots
        WHERE tenant = need.tenant AND attestor = need.attestor AND reason = need.reason AND slot <= $7::int
            AND claimed_at <= watchword.now() - make_interval(secs => $5)
        ORDER BY slot LIMIT need.n FOR UPDATE SKIP LOCKED) AS free
), ranked AS MATERIALIZED (
    SELECT tenant, attestor, reason, slot, row_number() OVER (PARTITION BY tenant, attestor ORDER BY nth, reason) AS k
    FROM candidate WHERE slot > $6
), together AS MATERIALIZED (
    SELECT free.tenant, free.attestor, free.slot, row_number() OVER (PARTITION BY free.tenant, free.attestor ORDER BY free.slot) AS k
    FROM (SELECT tenant, attestor, count(*) AS n FROM ranked GROUP BY tenant, attestor) AS wanted CROSS JOIN LATERAL (
        SELECT tenant, attestor, slot FROM refusal_slots
        WHERE tenant = wanted.tenant AND attestor = wanted.attestor AND reason = '*' AND slot <= $8::int
            AND claimed_at <= watchword.now() - make_interval(secs => $5)
        ORDER BY slot LIMIT wanted.n FOR UPDATE SKIP LOCKED) AS free
), taken AS MATERIALIZED (
    SELECT tenant, attestor, reason, slot FROM candidate WHERE slot <= $6
    UNION ALL SELECT r.tenant, r.attestor, r.reason, r.slot FROM ranked r JOIN together t USING (tenant, attestor, k)
    UNION ALL SELECT t.tenant, t.attestor, '*', t.slot FROM ranked r JOIN together t USING (tenant, attestor, k)
), stamped AS (
    UPDATE refusal_slots s SET claimed_at = watchword.now()
    FROM taken WHERE (s.tenant, s.attestor, s.reason, s.slot) = (taken.tenant, taken.attestor, taken.reason, taken.slot)
    RETURNING s.tenant, s.attestor, s.reason
)
SELECT tenant, attestor, reason, count(*)::int AS n FROM stamped WHERE reason <> '*' GROUP BY tenant, attestor, reason;

-- reopens
-- In how many seconds a bucket has a free slot again: its own exempt one, or one of its own and one of all reasons together.
-- NULL: the bucket has no rows. $6 and $7 are the limits, as above.
SELECT tenant, attestor, reason,
    CASE WHEN NOT is_there OR oldest IS NULL THEN NULL
         ELSE extract(epoch FROM greatest(oldest, watchword.now() - make_interval(secs => $4)) + make_interval(secs => $4) - watchword.now())::float8
    END AS seconds
FROM (
    SELECT bucket.tenant, bucket.attestor, bucket.reason, least(
        (SELECT min(claimed_at) FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = bucket.reason AND s.slot <= least($5::int, $6::int)),
        CASE WHEN $6 > $5 THEN greatest(
            (SELECT min(claimed_at) FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = bucket.reason AND s.slot > $5::int AND s.slot <= $6::int),
            (SELECT min(claimed_at) FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = '*' AND s.slot <= $7::int)) END) AS oldest,
        EXISTS (SELECT FROM refusal_slots s WHERE s.tenant = bucket.tenant AND s.attestor = bucket.attestor AND s.reason = bucket.reason) AS is_there
    FROM unnest($1::text[], $2::text[], $3::text[]) AS bucket (tenant, attestor, reason)
) AS buckets;
