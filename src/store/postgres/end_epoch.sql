-- Ends an epoch of a shard, if it is the present one, or if that is none that a node began. What is left of it is
-- purged later.
--
-- $1 namespace, $2 shard, $3 epoch; null: whichever is the present one
UPDATE {epochs} SET ended_at = now()
WHERE namespace = $1::text AND shard = $2::integer AND ended_at IS NULL
    AND (epoch = coalesce($3::bigint, epoch) OR epoch = 0)
