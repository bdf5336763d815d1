-- Adds an entry to each of some logs, whose keys the decider has locked. Removes blocks whose
-- entries have all left the window, a few at a time.
--
-- For each log: $1 epoch, $2 size, $3 key, $4 its number; $5 the block for the entry, null for a
-- new one, and $6 the number of entries in it before, $7 time, $8 sum; $9 the number and $10 the
-- sum of entries in all earlier blocks; $11 the first block whose entries have not all left, or
-- null; $12 milliseconds until it expires
WITH new AS MATERIALIZED (
    SELECT new.*, sha256(new.key) AS hash,
        now() + new.life * interval '1 millisecond' + interval '1 second' AS expires_at
    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::integer[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        AS new (epoch, size, key, log, block, kept, at, sum, number, base, gone, life)
), added AS (
    UPDATE {logs} AS block
    SET at = CASE WHEN new.kept = 0 THEN new.at ELSE block.at END,
        times = block.times[1:new.kept] || new.at,
        sums = block.sums[1:new.kept] || new.sum,
        -- A change below about a second is skipped, since the column is indexed.
        expires_at = CASE
            WHEN new.expires_at > block.expires_at + interval '1 second' THEN new.expires_at
            ELSE block.expires_at
        END
    FROM new
    WHERE block.epoch = new.epoch AND block.size = new.size AND sha256(block.key) = new.hash
        AND block.log = new.log AND block.at = new.block
), gone AS (
    DELETE FROM {logs} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM new CROSS JOIN LATERAL (
            SELECT ctid FROM {logs}
            WHERE epoch = new.epoch AND size = new.size AND sha256(key) = new.hash
                AND (log, at) < (new.log, new.gone)
            ORDER BY log, at LIMIT 2 FOR UPDATE SKIP LOCKED
        ) AS old
    ))
)
INSERT INTO {logs} (epoch, size, key, log, at, number, base, times, sums, expires_at)
SELECT epoch, size, key, log, at, number, base, ARRAY[at], ARRAY[sum], expires_at
FROM new WHERE block IS NULL
