-- An operator looks for a waiting join by the beginning of the digest that the machine shows. Without an index each look
-- reads all joins that have ever waited and are not pruned yet.
CREATE INDEX join_requests_csr ON join_requests (encode(csr_sha256, 'hex') text_pattern_ops);
