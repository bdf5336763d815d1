-- Returns the state of a shard, and the counters that other nodes changed since a position. Without
-- an epoch, returns no row; otherwise at least one, all of which have the same columns of the
-- shard.
--
-- $1 namespace, $2 shard, $3 epoch, $4 node, $5 position or null, $6 most counters, from up to 100
-- batches
WITH shard AS MATERIALIZED (
    SELECT present.epoch, present.changes, coalesce(node.number, 0) AS number,
        coalesce(present.changes = $5::bigint OR EXISTS (
            SELECT FROM {changes} AS known
            WHERE known.epoch = present.epoch AND known.number = $5
        ), false) AS is_known
    FROM {epochs} AS present
    LEFT JOIN {nodes} AS node ON node.epoch = present.epoch AND node.node = $4::text::uuid
    WHERE present.namespace = $1::text AND present.shard = $2::integer
        AND present.ended_at IS NULL
), remembered AS (
    -- A node that asks is kept.
    UPDATE {nodes} SET expires_at = now() + interval '1 day'
    WHERE epoch = $3::bigint AND node = $4::text::uuid
        AND expires_at < now() + interval '12 hours'
), batches AS MATERIALIZED (
    SELECT number, counters,
        sum(cardinality(counters)) OVER by_number AS total, row_number() OVER by_number AS place
    FROM (
        SELECT change.number, change.counters
        FROM shard JOIN {changes} AS change ON change.epoch = shard.epoch
        WHERE shard.epoch = $3 AND shard.is_known
            AND change.number > $5 AND change.node <> $4::text::uuid
        ORDER BY change.number
        -- One more than are returned, even if they have few counters.
        LIMIT 101
    ) AS change
    WINDOW by_number AS (ORDER BY number)
), part AS MATERIALIZED (
    SELECT number, counters FROM batches WHERE place = 1 OR (place <= 100 AND total <= $6::bigint)
), reach AS MATERIALIZED (
    SELECT (SELECT count(*) FROM batches) > (SELECT count(*) FROM part) AS has_more,
        (SELECT max(number) FROM part) AS last
), changed AS (
    SELECT counter.*
    FROM (SELECT DISTINCT unnest(counters) AS id FROM part) AS ids
    CROSS JOIN LATERAL (
        -- The limit forces one lookup for each counter, whatever size the planner assumes.
        SELECT window_size, window_number, key, thousandths
        FROM {counters} WHERE id = ids.id LIMIT 1
    ) AS counter
)
SELECT shard.epoch, shard.number, shard.is_known, reach.has_more,
    CASE WHEN reach.has_more THEN reach.last ELSE shard.changes END AS position,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
    changed.window_size, changed.window_number, changed.key, changed.thousandths
FROM shard CROSS JOIN reach LEFT JOIN changed ON true
