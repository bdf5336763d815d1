-- Removes some rows that are not needed any more, of all namespaces: expired counts, levels and
-- logs, old changes, nodes that are gone, and all rows of ended epochs. Returns the number of each.
--
-- $1 most rows of each kind, $2 number of changes that an epoch keeps
--
-- It does not wait for pushing nodes. Changes are removed from the oldest on, without a gap: a node
-- that knows the oldest one left has missed none.
WITH gone_counters AS (
    DELETE FROM {counters} WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM {counters} WHERE expires_at < now()
        ORDER BY expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), gone_with_epoch AS (
    DELETE FROM {counters} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM {epochs} AS e CROSS JOIN LATERAL (
            SELECT ctid FROM {counters}
            -- The rows of the first statement.
            WHERE epoch = e.epoch AND expires_at >= now()
            ORDER BY window_size LIMIT $1 FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE e.ended_at IS NOT NULL
        LIMIT $1
    ))
    RETURNING 1
), gone_levels AS (
    DELETE FROM {levels} WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM {levels} WHERE expires_at < now()
        ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), levels_gone_with_epoch AS (
    DELETE FROM {levels} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM {epochs} AS e CROSS JOIN LATERAL (
            SELECT ctid FROM {levels}
            WHERE epoch = e.epoch AND expires_at >= now()
            ORDER BY kind, size LIMIT $1 FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE e.ended_at IS NOT NULL
        LIMIT $1
    ))
    RETURNING 1
), gone_logs AS (
    DELETE FROM {logs} WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM {logs} WHERE expires_at < now()
        ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), logs_gone_with_epoch AS (
    DELETE FROM {logs} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM {epochs} AS e CROSS JOIN LATERAL (
            SELECT ctid FROM {logs}
            WHERE epoch = e.epoch AND expires_at >= now()
            ORDER BY size LIMIT $1 FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE e.ended_at IS NOT NULL
        LIMIT $1
    ))
    RETURNING 1
), gone_changes AS (
    DELETE FROM {changes} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM {epochs} AS e CROSS JOIN LATERAL (
            SELECT ctid FROM {changes}
            WHERE epoch = e.epoch
                AND (e.ended_at IS NOT NULL OR number < e.changes - $2::bigint)
            ORDER BY number LIMIT $1 FOR UPDATE
        ) AS old
        LIMIT $1
    ))
    RETURNING 1
), gone_nodes AS (
    DELETE FROM {nodes} WHERE ctid = ANY (ARRAY (
        SELECT old.ctid FROM {epochs} AS e CROSS JOIN LATERAL (
            SELECT ctid FROM {nodes}
            WHERE epoch = e.epoch AND (e.ended_at IS NOT NULL OR expires_at < now())
            LIMIT $1 FOR UPDATE SKIP LOCKED
        ) AS old
        LIMIT $1
    ))
    RETURNING 1
), gone_epochs AS (
    -- Not at once, since a batch of that epoch may still be running.
    DELETE FROM {epochs} AS e
    WHERE ended_at < now() - interval '1 hour'
        AND NOT EXISTS (SELECT FROM {counters} WHERE epoch = e.epoch)
        AND NOT EXISTS (SELECT FROM {changes} WHERE epoch = e.epoch)
        AND NOT EXISTS (SELECT FROM {nodes} WHERE epoch = e.epoch)
        AND NOT EXISTS (SELECT FROM {levels} WHERE epoch = e.epoch)
        AND NOT EXISTS (SELECT FROM {logs} WHERE epoch = e.epoch)
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone_counters) AS expired,
    (SELECT count(*) FROM gone_with_epoch) AS counters,
    (SELECT count(*) FROM gone_levels) AS expired_levels,
    (SELECT count(*) FROM levels_gone_with_epoch) AS levels,
    (SELECT count(*) FROM gone_logs) AS expired_logs,
    (SELECT count(*) FROM logs_gone_with_epoch) AS logs,
    (SELECT count(*) FROM gone_changes) AS changes,
    (SELECT count(*) FROM gone_nodes) AS nodes,
    (SELECT count(*) FROM gone_epochs) AS epochs
