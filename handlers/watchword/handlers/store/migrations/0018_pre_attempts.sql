-- What each worker judges now: one row for each of its batches in flight, overwritten by the next one, in the
-- statement that looks things up anyway. It has to outlive a worker and not PostgreSQL, so it writes no WAL.
CREATE UNLOGGED TABLE judging (
    worker text NOT NULL CHECK (length(worker) BETWEEN 1 AND 100),
    slot smallint NOT NULL CHECK (slot >= 0),
    incarnation uuid NOT NULL,
    digests bytea[] NOT NULL,
    begun_at timestamptz NOT NULL,
    PRIMARY KEY (worker, slot)
)
-- A batch of 64 stays in its row: moved out of line it would cost three times as much.
WITH (toast_tuple_target = 8160, fillfactor = 50);

-- Requests that were being judged when a worker ended, and how often each was begun.
CREATE TABLE attempts (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    tries smallint NOT NULL CHECK (tries >= 0),
    last_at timestamptz NOT NULL
);
