-- hold
INSERT INTO key_holders (holder, kids, version, seen_at) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (holder) DO UPDATE SET kids = EXCLUDED.kids, version = EXCLUDED.version, seen_at = EXCLUDED.seen_at;

-- forget
DELETE FROM key_holders WHERE seen_at < clock_timestamp() - interval '1 day';

-- let_go
DELETE FROM key_holders WHERE holder = $1;

-- lacking
-- Workers that are there and have not loaded a key.
SELECT holder FROM key_holders
WHERE seen_at > clock_timestamp() - make_interval(secs => $2) AND NOT $1::text = ANY(kids) ORDER BY holder;

-- valid_certificates
-- By the identifier of the CA's key, which each certificate of it repeats; it may be asked once a year.
SELECT count(*) FROM node_certs
WHERE not_after > watchword.now() AND revoked_at IS NULL AND position($1::bytea in der) > 0;
