-- Applies a batch of a node, if it is the next one. One statement, so all of it or nothing.
--
-- $1 namespace, $2 shard, $3 epoch, $4 node, $5 number of the batch, $6 the number before it,
-- $7 milliseconds for which the node is remembered; then for each counter, in order:
-- $8 sizes, $9 window numbers, $10 keys, $11 thousandths, $12 milliseconds until the count expires
--
-- A batch that arrives while the same one is still being applied waits for the node's row, and then
-- finds its number there. Rows of counters are locked in the order of their keys, so that nodes do
-- not wait for each other in a circle; that of the epoch comes last, and is locked until the batch
-- is committed: so changes are numbered in the order in which they become visible.
WITH accepted AS (
    INSERT INTO {nodes} AS node (epoch, node, number, expires_at)
    SELECT epoch, $4::text::uuid, $5::bigint, now() + $7::bigint * interval '1 millisecond'
    FROM {epochs}
    WHERE namespace = $1::text AND shard = $2::integer AND epoch = $3::bigint AND ended_at IS NULL
        AND ($5 = 1 OR EXISTS (
            SELECT FROM {nodes}
            WHERE epoch = $3 AND node = $4::text::uuid AND number = $6::bigint
        ))
    ON CONFLICT (epoch, node) DO UPDATE
    SET number = excluded.number, expires_at = greatest(node.expires_at, excluded.expires_at)
    WHERE node.number = $6
    RETURNING epoch
), counted AS (
    INSERT INTO {counters} AS counter
        (epoch, window_size, window_number, key, thousandths, expires_at)
    SELECT accepted.epoch, diff.size, diff.number, diff.key, diff.thousandths,
        now() + diff.life * interval '1 millisecond' + interval '1 second'
    FROM accepted, unnest($8::bigint[], $9::bigint[], $10::bytea[], $11::bigint[], $12::bigint[])
        AS diff (size, number, key, thousandths, life)
    ORDER BY diff.size, diff.number, diff.key
    ON CONFLICT (epoch, window_size, window_number, sha256(key)) DO UPDATE
    SET thousandths = counter.thousandths + excluded.thousandths,
        -- The same to about a second stays the same, since it is indexed.
        expires_at = CASE
            WHEN excluded.expires_at > counter.expires_at + interval '1 second'
            THEN excluded.expires_at
            ELSE counter.expires_at
        END
    RETURNING id
), numbered AS (
    UPDATE {epochs} AS present
    SET changes = present.changes + 1
    FROM (SELECT array_agg(id) AS counters FROM counted) AS batch
    WHERE present.epoch = $3 AND present.ended_at IS NULL AND batch.counters IS NOT NULL
    RETURNING present.epoch, present.changes, batch.counters
)
INSERT INTO {changes} (epoch, number, node, counters)
SELECT epoch, changes, $4::text::uuid, counters FROM numbered
