-- append
-- Add entries in the order given. The last statement of its transaction: seq must be drawn after every lock.
INSERT INTO journal (event_id, shard, class, topic, type, key, headers, value, private, occurred_at)
SELECT event_id, shard, class, topic, type, key, headers::jsonb, value, private, occurred_at
FROM unnest($1::journal_entry[])
    WITH ORDINALITY AS entry (shard, event_id, class, topic, type, key, headers, value, private, occurred_at, ord)
ORDER BY ord;
