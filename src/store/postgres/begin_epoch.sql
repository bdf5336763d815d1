-- Opens an epoch for a shard, unless it has one. Change 0 changes nothing, so that each position
-- belongs to a change.
--
-- $1 namespace, $2 shard, $3 epoch
WITH begun AS (
    INSERT INTO {epochs} (epoch, namespace, shard, changes)
    VALUES ($3::bigint, $1::text, $2::integer, 0)
    ON CONFLICT DO NOTHING
    RETURNING epoch
)
INSERT INTO {changes} (epoch, number, node, counters)
SELECT epoch, 0, '00000000-0000-0000-0000-000000000000', '{}' FROM begun
