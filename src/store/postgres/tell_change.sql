-- Records the change, and notifies listening sessions with a number that contains only the shard
-- and the node, since roles without the right to read the tables can listen, too.
--
-- $13 the number
, noted AS (
    INSERT INTO {changes} (epoch, number, node, counters)
    SELECT epoch, changes, $2::text::uuid, counters FROM numbered
    RETURNING epoch
)
SELECT pg_notify('ngx_rate_limiting', $13::text) FROM noted
