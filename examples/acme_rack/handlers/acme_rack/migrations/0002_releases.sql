-- A machine that has proved its key waits here until a technician puts their name beside it.
CREATE TABLE plg_acme_rack__releases (
    serial text PRIMARY KEY REFERENCES plg_acme_rack__machines,
    asked_at timestamptz NOT NULL,
    released_by text
);
