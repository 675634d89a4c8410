-- before_mark
SELECT clock_timestamp()::text;

-- take_lease
-- Ours, or nobody's any more. The epoch changes with the owner.
INSERT INTO leases (name, owner, expires_at) VALUES ('keeper', $1, clock_timestamp() + make_interval(secs => $2))
ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner, expires_at = excluded.expires_at,
        epoch = leases.epoch + CASE WHEN leases.owner = excluded.owner THEN 0 ELSE 1 END
    WHERE leases.owner = excluded.owner OR leases.expires_at <= clock_timestamp()
RETURNING epoch, pg_current_xact_id()::text AS xid;

-- hold_lease
-- Nobody takes the lease while this transaction lasts.
SELECT epoch FROM leases WHERE name = 'keeper' AND owner = $1 AND epoch = $2 AND expires_at > clock_timestamp() FOR SHARE;

-- release_lease
UPDATE leases SET expires_at = '-infinity' WHERE name = 'keeper' AND owner = $1;

-- prune_inbox
-- SKIP LOCKED: the keeper waits for nobody, so it can be in no deadlock; what a worker holds is pruned next time.
WITH old AS MATERIALIZED (
    SELECT digest FROM inbox WHERE at < watchword.now() - make_interval(secs => $1) ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM inbox i USING old WHERE i.digest = old.digest;

-- prune_uses
WITH old AS MATERIALIZED (
    SELECT attestor, subject FROM attestation_uses
    WHERE expires_at < watchword.now() - make_interval(secs => $1) ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM attestation_uses u USING old WHERE u.attestor = old.attestor AND u.subject = old.subject;

-- prune_leases
WITH old AS MATERIALIZED (
    SELECT name FROM leases WHERE name LIKE 'relay:%' AND expires_at < clock_timestamp() - make_interval(secs => $1) LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM leases l USING old WHERE l.name = old.name;

-- now
SELECT watchword.now();

-- waiting
SELECT count(*) AS joins, coalesce(extract(epoch FROM watchword.now() - min(requested_at)), 0)::float8 AS oldest_s
FROM join_requests WHERE state = 'pending';

-- prune_requests
WITH old AS MATERIALIZED (
    SELECT attestor, subject, csr_sha256 FROM join_requests
    WHERE state IN ('rejected', 'expired', 'consumed') AND expires_at < watchword.now() - make_interval(secs => $1)
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM join_requests r USING old WHERE r.attestor = old.attestor AND r.subject = old.subject AND r.csr_sha256 = old.csr_sha256;

-- prune_explain_jobs
WITH old AS MATERIALIZED (
    SELECT id FROM explain_jobs WHERE expires_at < clock_timestamp() - make_interval(secs => $1) LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM explain_jobs j USING old WHERE j.id = old.id;
