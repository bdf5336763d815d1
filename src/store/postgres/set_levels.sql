-- Sets levels of a shard. The decider has locked their keys.
--
-- $1 epoch; then for each counter, in order: $2 kinds, $3 sizes, $4 keys, $5 thousandths, and in
-- milliseconds of Unix time $6 when they changed last, $7 when they began; $8 milliseconds until they
-- expire
INSERT INTO {levels} AS level
    (epoch, kind, size, key, thousandths, changed_at, began_at, expires_at)
SELECT $1::bigint, new.kind, new.size, new.key, new.thousandths, new.changed_at, new.began_at,
    now() + new.life * interval '1 millisecond' + interval '1 second'
FROM unnest($2::smallint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[]) AS new (kind, size, key, thousandths, changed_at, began_at, life)
ORDER BY new.kind, new.size, new.key
ON CONFLICT (epoch, kind, size, sha256(key)) DO UPDATE
SET thousandths = excluded.thousandths, changed_at = excluded.changed_at,
    began_at = excluded.began_at,
    -- A change below about a second is skipped, since the column is indexed.
    expires_at = CASE
        WHEN excluded.expires_at > level.expires_at + interval '1 second'
        THEN excluded.expires_at
        ELSE level.expires_at
    END
