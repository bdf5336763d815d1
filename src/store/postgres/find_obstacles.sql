-- Returns the time of the hit with which so many hits of a log have left its window that only the
-- given number is left. Null if there is no such hit.
--
-- $1 namespaces and $2 numbers of shards; then for each: $3 its shard, numbered from 1, $4 size, $5 key,
-- $6 thousandths that may be left
SELECT asked.place, (
        SELECT times[1 + width_bucket(newest.sum - asked.rest - 1, sums)] FROM {logs}
        WHERE epoch = newest.epoch AND size = asked.size AND sha256(key) = asked.hash
            AND log = newest.log AND base < newest.sum - asked.rest
        ORDER BY base DESC LIMIT 1
    ) AS at
FROM (
    SELECT shard, size, sha256(key) AS hash, rest, place
    FROM unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[]) WITH ORDINALITY
        AS asked (shard, size, key, rest, place)
) AS asked
JOIN unnest($1::text[], $2::integer[]) WITH ORDINALITY AS shard (namespace, number, place)
    ON shard.place = asked.shard
JOIN {epochs} AS present ON present.namespace = shard.namespace
    AND present.shard = shard.number AND present.ended_at IS NULL
CROSS JOIN LATERAL (
    SELECT epoch, log, sums[cardinality(sums)] AS sum FROM {logs}
    WHERE epoch = present.epoch AND size = asked.size AND sha256(key) = asked.hash
    ORDER BY log DESC, at DESC LIMIT 1
) AS newest
