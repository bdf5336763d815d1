-- Returns counters in the current and the previous window, by the server's clock, which is read
-- once. At least one row; the epoch is null if the shard has none, and a count is null without a
-- row. The next part selects the counters, and may add columns.
--
-- $1 namespaces and $2 numbers of shards; then for each counter: $3 its shard, numbered from 1,
-- $4 size, $5 key, $6 the number of its window if that is not the time divided by the size, as with windows of the
-- calendar; or $6 is empty
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), shards AS MATERIALIZED (
    SELECT shard.place, present.epoch
    FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS shard (namespace, number, place)
    LEFT JOIN {epochs} AS present ON present.namespace = shard.namespace
        AND present.shard = shard.number AND present.ended_at IS NULL
), counters AS MATERIALIZED (
    SELECT counter.place, shards.epoch, counter.size,
        coalesce(($6::bigint[])[counter.place], clock.now / counter.size) AS number,
        sha256(counter.key) AS hash
    FROM clock
    CROSS JOIN unnest($3::bigint[], $4::bigint[], $5::bytea[]) WITH ORDINALITY
        AS counter (shard, size, key, place)
    JOIN shards ON shards.place = counter.shard
)
SELECT clock.now, asked.place, asked.epoch, (
        SELECT thousandths FROM {counters}
        WHERE epoch = asked.epoch AND window_size = asked.size
            AND window_number = asked.number AND sha256(key) = asked.hash
    ) AS current, (
        SELECT thousandths FROM {counters}
        WHERE epoch = asked.epoch AND window_size = asked.size
            AND window_number = asked.number - 1 AND sha256(key) = asked.hash
    ) AS previous
