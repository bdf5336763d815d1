-- The next counters of a window, in the order of their keys' hashes.
--
-- $1 namespace, $2 shard, $3 epoch, $4 size, $5 window number, $6 the hash to continue after, $7
-- most counters
SELECT counter.key, counter.thousandths, sha256(counter.key) AS hash
FROM {epochs} AS present JOIN {counters} AS counter ON counter.epoch = present.epoch
WHERE present.epoch = $3::bigint AND present.namespace = $1::text
    AND present.shard = $2::integer AND present.ended_at IS NULL
    AND counter.epoch = $3 AND counter.window_size = $4::bigint
    AND counter.window_number = $5::bigint AND sha256(counter.key) > $6::bytea
ORDER BY sha256(counter.key)
LIMIT $7::bigint
