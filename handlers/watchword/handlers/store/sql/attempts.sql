-- take_up
-- What other incarnations had begun and nobody has settled. Sorted: two workers may do this at once.
INSERT INTO attempts (digest, tries, last_at)
SELECT DISTINCT begun.digest, 1, watchword.now()
FROM judging, unnest(judging.digests) AS begun (digest)
WHERE judging.incarnation <> $1
  AND NOT EXISTS (SELECT FROM inbox WHERE inbox.digest = begun.digest)
ORDER BY 1
ON CONFLICT (digest) DO NOTHING;

-- forget_old
-- What is older than the retention of join.requests does not come again.
WITH gone AS (
    DELETE FROM judging WHERE begun_at < watchword.now() - interval '25 hours' AND incarnation <> $1
)
DELETE FROM attempts WHERE digest IN (
    SELECT digest FROM attempts WHERE last_at < watchword.now() - interval '25 hours'
    ORDER BY digest LIMIT 5000 FOR UPDATE SKIP LOCKED
);

-- suspects
SELECT digest, tries FROM attempts;

-- count_try
-- May be said twice: whoever lost the connection does not know whether it was committed.
INSERT INTO attempts (digest, tries, last_at) VALUES ($1, $2, watchword.now())
ON CONFLICT (digest) DO UPDATE SET tries = greatest(attempts.tries, excluded.tries), last_at = excluded.last_at;

-- clear
DELETE FROM attempts WHERE digest = $1;
