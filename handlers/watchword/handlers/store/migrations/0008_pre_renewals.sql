-- A node's life after its join.

-- Counts every change of a node: a renewal, a re-key, an operator's act. Whoever judged or saw another version has
-- to look again.
ALTER TABLE nodes ADD COLUMN version integer NOT NULL DEFAULT 1 CHECK (version > 0);

-- The certificate that a renewal gave in this one's place, and when a second key was renewed from this one.
ALTER TABLE node_certs ADD COLUMN renewed_by bytea CHECK (length(renewed_by) = 32), ADD COLUMN contested_at timestamptz;
