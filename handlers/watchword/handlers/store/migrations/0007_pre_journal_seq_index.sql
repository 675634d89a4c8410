-- By seq and by xid are two different readings, and neither index may stand in for the other: over a partition that
-- PostgreSQL knows to be empty both cost the same, the plan is kept, and a relay that looks for news by seq reads the
-- whole journal at each look. `shard::integer` is for readers in the order of seq, `shard` for those by xid.
DROP INDEX journal_shard_seq;
CREATE INDEX journal_shard_seq ON journal ((shard::integer), seq);
