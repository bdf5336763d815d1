    -- Adds for logs the last block, the last time and sum, and the number of entries; of the
    -- entries that have left, their number, their sum, and the block of the last one; and the
    -- oldest time that has not left. All are null for other counters, and for a log without
    -- entries.
    --
    -- $7 the counters that are logs, numbered from 1
    , newest.log, newest.at AS block, newest.length, newest.last, newest.sum, newest.entries,
    coalesce(gone.entries, rest.number) AS gone, coalesce(gone.sum, rest.base) AS base,
    gone.at AS gone_block, coalesce(gone.next, rest.at) AS oldest
FROM clock LEFT JOIN counters AS asked ON true
LEFT JOIN LATERAL (
    SELECT log, at, cardinality(times) AS length, times[cardinality(times)] AS last,
        sums[cardinality(sums)] AS sum, number + cardinality(times) AS entries
    FROM {logs}
    WHERE asked.place = ANY ($7::bigint[])
        AND epoch = asked.epoch AND size = asked.size AND sha256(key) = asked.hash
    ORDER BY log DESC, at DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT at, number + gone AS entries, sums[gone] AS sum, times[gone + 1] AS next
    FROM (
        SELECT at, number, times, sums,
            width_bucket(clock.now - asked.size - 1, times) AS gone
        FROM {logs}
        WHERE epoch = asked.epoch AND size = asked.size AND sha256(key) = asked.hash
            AND log = newest.log AND at < clock.now - asked.size
        ORDER BY at DESC LIMIT 1
    ) AS block
) AS gone ON true
LEFT JOIN LATERAL (
    SELECT at, number, base FROM {logs}
    WHERE gone.next IS NULL
        AND epoch = asked.epoch AND size = asked.size AND sha256(key) = asked.hash
        AND log = newest.log AND at >= clock.now - asked.size
    ORDER BY at LIMIT 1
) AS rest ON true
