-- Applies a node's batch if it is the next one, in one statement, so completely or not at all.
-- count.sql follows, with its parameters; after them come
--
-- $8 namespace, $9 shard, $10 the batch's id, $11 that of the batch before it, 0 if it is the first,
-- $12 milliseconds for which the node is remembered, $13 whether diffs below zero are refunds
--
-- A batch that arrives while the same one is being applied waits for the node's row, and then finds
-- its own id there.
WITH accepted AS (
    INSERT INTO {nodes} AS node (epoch, node, number, expires_at)
    SELECT epoch, $2::text::uuid, $10::bigint, now() + $12::bigint * interval '1 millisecond'
    FROM {epochs}
    WHERE namespace = $8::text AND shard = $9::integer AND epoch = $1::bigint AND ended_at IS NULL
        AND ($11::bigint = 0 OR EXISTS (
            SELECT FROM {nodes}
            WHERE epoch = $1 AND node = $2::text::uuid AND number = $11::bigint
        ))
    ON CONFLICT (epoch, node) DO UPDATE
    SET number = excluded.number, expires_at = greatest(node.expires_at, excluded.expires_at)
    WHERE node.number = $11
    RETURNING epoch, $13::boolean AS refunds
),
