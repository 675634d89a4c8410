-- What operators write down for attestors to lean on.

CREATE TABLE images (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{16}$'),
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    second_fact text NOT NULL CHECK (second_fact IN ('approval', 'unsafe_single_factor')),
    once_per_machine boolean NOT NULL DEFAULT false,
    allowed_kinds text[],
    expect jsonb NOT NULL DEFAULT '{}',
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    created_by text NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
);

CREATE TABLE discovery_sites (
    kid text PRIMARY KEY CHECK (kid ~ '^[A-Za-z0-9_-]{1,64}$'),
    public_key bytea NOT NULL CHECK (length(public_key) = 32),
    tenant text NOT NULL,
    site text NOT NULL,
    pool text NOT NULL,
    approval text NOT NULL CHECK (approval IN ('unknown-machines', 'always')),
    allowed_kinds text[] NOT NULL,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    created_by text NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
);

CREATE TABLE cloud_accounts (
    provider text NOT NULL CHECK (provider IN ('aws', 'gcp', 'azure')),
    account text NOT NULL CHECK (account ~ '^[A-Za-z0-9:._-]{1,128}$'),
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    regions text[],
    approval boolean NOT NULL DEFAULT false,
    allowed_kinds text[],
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    created_by text NOT NULL,
    revoked_at timestamptz,
    PRIMARY KEY (provider, account),
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
);

CREATE TABLE tpm_endorsements (
    ek_sha256 bytea PRIMARY KEY CHECK (length(ek_sha256) = 32),
    tenant text NOT NULL,
    pool text NOT NULL,
    site text,
    role text NOT NULL CHECK (role IN ('node', 'site', 'ramdisk')),
    allowed_kinds text[],
    note text NOT NULL DEFAULT '' CHECK (length(note) <= 200),
    created_at timestamptz NOT NULL DEFAULT watchword.now(),
    created_by text NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (tenant, pool) REFERENCES pools,
    FOREIGN KEY (tenant, site) REFERENCES sites
);

CREATE TABLE tpm_policies (
    tenant text NOT NULL,
    pool text NOT NULL,
    policy jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT watchword.now(),
    updated_by text NOT NULL,
    PRIMARY KEY (tenant, pool),
    FOREIGN KEY (tenant, pool) REFERENCES pools
);
