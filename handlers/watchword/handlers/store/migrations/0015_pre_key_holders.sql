-- Which keys each worker has loaded, so that none is activated which one of them cannot use. Names, and no key.
CREATE TABLE key_holders (
    holder text PRIMARY KEY CHECK (length(holder) BETWEEN 1 AND 200),
    kids text[] NOT NULL,
    version bigint NOT NULL,
    seen_at timestamptz NOT NULL
);
