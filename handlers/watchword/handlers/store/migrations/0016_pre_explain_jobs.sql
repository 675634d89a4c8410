-- What operators ask workers to judge again: a job is taken by one worker and answered, and goes soon afterwards.
CREATE TABLE explain_jobs (
    id uuid PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('asked', 'taken', 'done', 'failed')),
    asked_at timestamptz NOT NULL,
    asked_by text NOT NULL,
    -- What is asked, a JSON object; and what came with it: a request's bytes, as sealed as they were, and a draft.
    question jsonb NOT NULL CHECK (octet_length(question::text) <= 4096),
    request bytea CHECK (octet_length(request) <= 524288),
    draft bytea CHECK (octet_length(draft) <= 4194304),
    expires_at timestamptz NOT NULL,
    worker text,
    taken_until timestamptz,
    tries integer NOT NULL DEFAULT 0,
    answer jsonb CHECK (octet_length(answer::text) <= 8388608)
);
-- Few at any time. A worker looks for one every second.
CREATE INDEX explain_jobs_open ON explain_jobs (asked_at) WHERE state IN ('asked', 'taken');
