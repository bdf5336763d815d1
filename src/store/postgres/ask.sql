-- Returns the state of a shard, and the counters that other nodes changed since a position. Without
-- an epoch, returns no row; otherwise at least one, all of which have the same columns of the
-- shard.
--
-- $1 namespace, $2 shard, $3 epoch, $4 node, $5 position or null, $6 most counters, from up to 1000
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
        LIMIT 1001
    ) AS change
    WINDOW by_number AS (ORDER BY number)
), met AS MATERIALIZED (
    -- The counters, each with the first batch that has it: busy ones are in many batches.
    SELECT id, min(number) AS number
    FROM (
        SELECT number, unnest(counters) AS id FROM batches
        WHERE place = 1 OR (place <= 1000 AND total <= 10 * $6::bigint)
    ) AS named
    GROUP BY id
), reach AS MATERIALIZED (
    -- The first batch that is not returned.
    SELECT least((
            SELECT min(number) FROM (
                SELECT number, sum(count(*)) OVER (ORDER BY number) AS total FROM met GROUP BY number
            ) AS counted
            WHERE total > $6 AND number > (SELECT min(number) FROM batches)
        ), (
            SELECT min(number) FROM batches
            WHERE place > 1 AND (place > 1000 OR total > 10 * $6)
        )) AS next
), changed AS (
    SELECT counter.*
    FROM reach JOIN met ON reach.next IS NULL OR met.number < reach.next
    CROSS JOIN LATERAL (
        -- The limit forces one lookup for each counter, whatever size the planner assumes.
        SELECT window_size, window_number, key, thousandths
        FROM {counters} WHERE id = met.id LIMIT 1
    ) AS counter
)
SELECT shard.epoch, shard.number, shard.is_known, reach.next IS NOT NULL AS has_more,
    CASE WHEN reach.next IS NULL THEN shard.changes
        ELSE (SELECT max(number) FROM batches WHERE number < reach.next) END AS position,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
    changed.window_size, changed.window_number, changed.key, changed.thousandths
FROM shard CROSS JOIN reach LEFT JOIN changed ON true
