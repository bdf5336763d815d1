-- Records the change, and notifies listening sessions, unless a push has notified them so recently
-- that they will look again. Returns the counters that the batch has made negative, and rows without
-- one. The notification is a number that contains only the shard and the node,
-- since roles without the right to read the tables can listen, too.
--
-- $14 the number, $15 milliseconds for which later pushes do not notify
--
-- A row of the nodes has the end of this silence, as its negative number. It is locked until the
-- commit, after the epoch's row, so that each push knows the ones before it.
, noted AS (
    INSERT INTO {changes} (epoch, number, node, counters)
    SELECT epoch, changes, $2::text::uuid, counters FROM numbered
    RETURNING epoch
), telling AS (
    INSERT INTO {nodes} AS silence (epoch, node, number, expires_at)
    SELECT epoch, '00000000-0000-0000-0000-000000000000',
        -(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $15::bigint,
        now() + interval '1 day'
    FROM noted
    ON CONFLICT (epoch, node) DO UPDATE
    SET number = excluded.number, expires_at = excluded.expires_at
    -- A later end than any was written by somebody else, or before the clock was set back.
    WHERE silence.number NOT BETWEEN excluded.number + $15 - 10000 AND excluded.number + $15 - 1
    RETURNING epoch
)
SELECT window_size, window_number, key, thousandths, NULL AS told FROM counted WHERE thousandths < 0
UNION ALL
SELECT NULL, NULL, NULL, NULL, pg_notify('ngx_rate_limiting', $14::text)::text FROM telling
