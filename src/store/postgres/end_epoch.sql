-- Ends an epoch of a shard, if it is the present one. What is left of it is purged later.
--
-- $1 namespace, $2 shard, $3 epoch
UPDATE {epochs} SET ended_at = now()
WHERE namespace = $1::text AND shard = $2::integer AND epoch = $3::bigint AND ended_at IS NULL
