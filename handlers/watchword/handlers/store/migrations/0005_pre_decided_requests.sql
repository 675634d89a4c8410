-- Joins that were decided long ago are pruned by their age.
CREATE INDEX join_requests_over ON join_requests (expires_at) WHERE state IN ('rejected', 'expired', 'consumed');
