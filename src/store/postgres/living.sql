-- Records how long a node lives, and counts the other living nodes, and those before it. The row of
-- a living node has a name and a number that no batch uses. A row with a longer life than any node's
-- was written by somebody else.
--
-- $1 epoch, $2 the name of the row, $3 milliseconds, $4 the longest life of a node
WITH noted AS (
    INSERT INTO {nodes} AS node (epoch, node, number, expires_at)
    VALUES ($1::bigint, $2::text::uuid, -1, now() + $3::bigint * interval '1 millisecond')
    ON CONFLICT (epoch, node) DO UPDATE SET expires_at = excluded.expires_at
)
SELECT count(*), count(*) FILTER (WHERE node < $2::text::uuid) FROM {nodes}
WHERE epoch = $1 AND number = -1 AND expires_at > now()
    AND expires_at <= now() + $4::bigint * interval '1 millisecond' AND node <> $2::text::uuid
