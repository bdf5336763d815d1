-- Records the change, and returns the counters that the batch has made negative, which ends the
-- statement.
, noted AS (
    INSERT INTO {changes} (epoch, number, node, counters)
    SELECT epoch, changes, $2::text::uuid, counters FROM numbered
)
SELECT window_size, window_number, key, thousandths FROM counted WHERE thousandths < 0
