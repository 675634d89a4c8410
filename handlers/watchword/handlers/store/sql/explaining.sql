-- now
SELECT watchword.now();

-- outcome
-- xmin is the transaction that wrote the row: its lower 32 bits.
SELECT outcome, node_id, csr_sha256, reason, at, xmin::text::bigint AS xid FROM inbox WHERE digest = $1;

-- refusal
SELECT type, attestor, reason, tenant, topic, "partition", "offset", worker, occurred_at, recorded_at, xid::text::bigint AS xid
FROM refusals WHERE request_sha256 = $1 ORDER BY recorded_at DESC LIMIT 1;

-- refusal_by_id
SELECT request_sha256 FROM refusals WHERE request_id = $1 ORDER BY recorded_at DESC LIMIT 1;

-- admission
-- Of a request whose answer is forgotten: the audit row of its node says that it was this one.
SELECT c.node_id, a.at FROM node_certs c JOIN audit_log a ON a.target = c.node_id::text AND a.action IN ('node.join', 'node.renew')
WHERE c.csr_sha256 = $1 AND a.detail ->> 'request' = encode($2::bytea, 'hex') ORDER BY a.id DESC LIMIT 1;

-- tail_of_shard
SELECT seq, xid, recorded_at, occurred_at, type, key, private, value FROM journal WHERE class = 'domain' AND shard::integer = {shard}

-- tail
-- Newest first: each shard comes backwards from the index on (shard, seq), thirty-two are merged, and nothing is sorted.
SELECT seq, xid::text::bigint AS xid, recorded_at, occurred_at, type, convert_from(key, 'UTF8') AS key, convert_from(private, 'UTF8') AS private,
       CASE WHEN type LIKE 'join.%' THEN convert_from(value, 'UTF8') END AS value
FROM ({union}) AS events ORDER BY seq DESC

-- events_of
SELECT seq, xid::text::bigint AS xid, recorded_at, occurred_at, type, convert_from(key, 'UTF8') AS key, convert_from(private, 'UTF8') AS private,
       CASE WHEN type LIKE 'join.%' THEN convert_from(value, 'UTF8') END AS value
FROM journal WHERE class = 'domain' AND shard::integer = $1 AND key = $2 ORDER BY seq;

-- grants
SELECT id, node_id, attestor, subject, expires_at, state FROM reclaim_grants
WHERE subject = ANY($1::bytea[]) OR id = ANY($2::uuid[]) ORDER BY id;

-- nodes_of_subjects
SELECT s.subject, s.node_id, n.state, n.joined_at FROM node_subjects s JOIN nodes n ON n.id = s.node_id WHERE s.subject = ANY($1::bytea[]);

-- uses
SELECT u.attestor, u.subject, u.node_id, u.expires_at
FROM attestation_uses u JOIN unnest($1::text[], $2::bytea[]) AS wanted (attestor, subject) USING (attestor, subject);

-- open_jobs
SELECT count(*) FROM explain_jobs WHERE state IN ('asked', 'taken') AND expires_at > clock_timestamp();

-- lock_jobs
-- Two who ask at once take turns, so that the bound is exact.
SELECT pg_advisory_xact_lock($1);

-- ask
INSERT INTO explain_jobs (id, state, asked_at, asked_by, question, request, draft, expires_at)
VALUES ($1, 'asked', clock_timestamp(), $2, $3::jsonb, $4, $5, clock_timestamp() + make_interval(secs => $6));

-- take
-- One that nobody has, or whose worker has died over it. The third that dies over it leaves it.
UPDATE explain_jobs SET state = 'taken', worker = $1, taken_until = clock_timestamp() + make_interval(secs => $2), tries = tries + 1
WHERE id = (
    SELECT id FROM explain_jobs
    WHERE state IN ('asked', 'taken') AND (state = 'asked' OR taken_until <= clock_timestamp()) AND expires_at > clock_timestamp() AND tries < 3
    ORDER BY asked_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING id, question, request, draft;

-- answer
-- Only whoever has it; what came with the question is not kept.
UPDATE explain_jobs SET state = $3, answer = $4::jsonb, request = NULL, draft = NULL WHERE id = $1 AND worker = $2 AND state = 'taken';

-- answered
SELECT state, answer, worker, tries FROM explain_jobs WHERE id = $1;

-- drop_job
DELETE FROM explain_jobs WHERE id = $1;
