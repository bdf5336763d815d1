-- Adds the levels of counters that have one.
--
-- $1 namespaces and $2 numbers of shards; then for each counter: $3 its shard, numbered from 1,
-- $4 kind, $5 size, $6 key
SELECT asked.place, level.thousandths, level.changed_at, level.began_at
FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS shard (namespace, number, place)
JOIN {epochs} AS present ON present.namespace = shard.namespace
    AND present.shard = shard.number AND present.ended_at IS NULL
JOIN unnest($3::bigint[], $4::smallint[], $5::bigint[], $6::bytea[]) WITH ORDINALITY
    AS asked (shard, kind, size, key, place) ON asked.shard = shard.place
JOIN {levels} AS level ON level.epoch = present.epoch AND level.kind = asked.kind
    AND level.size = asked.size AND sha256(level.key) = sha256(asked.key)
