CREATE TABLE plg_acme_rack__machines (
    serial text PRIMARY KEY CHECK (serial ~ '^R[0-9]{2}-[0-9]{4}$'),
    public_key bytea NOT NULL CHECK (length(public_key) = 32),
    tenant text NOT NULL,
    pool text NOT NULL
);
