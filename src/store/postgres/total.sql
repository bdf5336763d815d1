-- Returns a counter of the current epoch.
--
-- $1 namespace, $2 shard, $3 size, $4 window number, $5 key
SELECT counter.thousandths
FROM {epochs} AS present JOIN {counters} AS counter ON counter.epoch = present.epoch
WHERE present.namespace = $1::text AND present.shard = $2::integer
    AND present.ended_at IS NULL
    AND counter.window_size = $3::bigint AND counter.window_number = $4::bigint
    AND sha256(counter.key) = sha256($5::bytea)
