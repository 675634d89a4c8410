-- append
-- Add entries in the order given. The last statement of its transaction: seq must be drawn after every lock.
INSERT INTO journal (event_id, shard, class, topic, type, key, headers, value, private, occurred_at)
SELECT event_id, shard, class, topic, type, key, headers::jsonb, value, private, occurred_at
FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::bytea[], $9::bytea[], $10::timestamptz[])
    WITH ORDINALITY AS entry (event_id, shard, class, topic, type, key, headers, value, private, occurred_at, ord)
ORDER BY ord;
