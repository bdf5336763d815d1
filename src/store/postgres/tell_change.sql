-- Notes the change, and notifies those that listen that there is one, with a number that says no more than in which
-- shard, and by whom: whoever may not read the tables can listen, too.
--
-- $13 the number
, noted AS (
    INSERT INTO {changes} (epoch, number, node, counters)
    SELECT epoch, changes, $2::text::uuid, counters FROM numbered
    RETURNING epoch
)
SELECT pg_notify('ngx_rate_limiting', $13::text) FROM noted
