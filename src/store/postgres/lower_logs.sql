-- Removes the newest hits of logs, so that sums are at most this. The decider has locked their
-- keys.
--
-- For each log: $1 epoch, $2 size, $3 key, $4 its number, $5 the sum
WITH low AS MATERIALIZED (
    SELECT epoch, size, sha256(key) AS hash, log, sum
    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[])
        AS low (epoch, size, key, log, sum)
), gone AS (
    DELETE FROM {logs} AS block USING low
    WHERE block.epoch = low.epoch AND block.size = low.size AND sha256(block.key) = low.hash
        AND block.log = low.log AND block.base >= low.sum
)
UPDATE {logs} AS block
SET times = block.times[1:1 + width_bucket(low.sum - 1, block.sums)],
    sums = block.sums[1:width_bucket(low.sum - 1, block.sums)] || low.sum
FROM low CROSS JOIN LATERAL (
    SELECT at FROM {logs}
    WHERE epoch = low.epoch AND size = low.size AND sha256(key) = low.hash
        AND log = low.log AND base < low.sum
    ORDER BY base DESC LIMIT 1
) AS last
WHERE block.epoch = low.epoch AND block.size = low.size AND sha256(block.key) = low.hash
    AND block.log = low.log AND block.at = last.at
