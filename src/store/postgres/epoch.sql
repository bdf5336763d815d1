-- The epoch of a shard.
--
-- $1 namespace, $2 shard
SELECT epoch FROM {epochs}
WHERE namespace = $1::text AND shard = $2::integer AND ended_at IS NULL
