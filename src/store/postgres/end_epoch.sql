-- Ends an epoch of a shard if it is the current one, or if no node has begun the current one. Its
-- rows are purged later.
--
-- $1 namespace, $2 shard, $3 epoch; null for the current one in any case
UPDATE {epochs} SET ended_at = now()
WHERE namespace = $1::text AND shard = $2::integer AND ended_at IS NULL
    AND (epoch = coalesce($3::bigint, epoch) OR epoch = 0)
