-- Returns the counters that other nodes changed in an epoch after the change with this number, for
-- batches with few counters. Returns at least one row while the epoch exists; each has the number
-- of the last change, and the milliseconds for which pushes do not notify (see tell_change.sql).
--
-- $1 epoch, $2 number, $3 most counters of a batch, and in the answer, $4 node
SELECT present.changes, silence.rest AS silence,
    counter.window_size, counter.window_number, counter.key, counter.thousandths
FROM {epochs} AS present
LEFT JOIN LATERAL (
    SELECT -silence.number - clock.now AS rest
    FROM {nodes} AS silence CROSS JOIN (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
    ) AS clock
    WHERE silence.epoch = present.epoch
        AND silence.node = '00000000-0000-0000-0000-000000000000'
        AND silence.number BETWEEN -clock.now - 10000 AND -clock.now - 1
) AS silence ON true
LEFT JOIN LATERAL (
    SELECT counter.window_size, counter.window_number, counter.key, counter.thousandths
    FROM (
        SELECT DISTINCT unnest(counters) AS id
        FROM {changes} AS change
        WHERE change.epoch = present.epoch AND change.number > $2::bigint
            AND change.node <> $4::text::uuid
            AND cardinality(change.counters) <= $3::bigint
        LIMIT $3
    ) AS ids
    CROSS JOIN LATERAL (SELECT * FROM {counters} WHERE id = ids.id LIMIT 1) AS counter
) AS counter ON true
WHERE present.epoch = $1::bigint AND present.ended_at IS NULL
