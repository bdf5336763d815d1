-- Adds the charges in a shard. count.sql follows, with its parameters.
WITH accepted AS (SELECT $1::bigint AS epoch, false AS refunds),
