CREATE TABLE plg_acme_asset__vendors (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9-]{1,32}$'),
    public_key bytea NOT NULL CHECK (length(public_key) = 32)
);

CREATE TABLE plg_acme_asset__tags (
    tag text PRIMARY KEY CHECK (tag ~ '^[A-Z]{2,8}-[0-9]{6}$'),
    tenant text NOT NULL,
    pool text NOT NULL,
    retired boolean NOT NULL DEFAULT false
);
