-- Adds diffs to the counts of the epoch in `accepted`, which begins the statement, and numbers that
-- as a change. If the epoch has ended meanwhile, so have its counts, and there is no change. If
-- `accepted` says that diffs below zero are refunds, they make no count negative.
--
-- $1 epoch, $2 node; then for each counter, in order: $3 sizes, $4 window numbers, $5 keys,
-- $6 thousandths, $7 milliseconds until the count expires
--
-- note_change.sql follows, or tell_change.sql.
--
-- Rows of counters are locked in the order of their keys, so that no deadlock is possible. The
-- epoch's row is locked last, until the commit, so that changes are numbered in the order in which
-- they become visible.
counted AS (
    INSERT INTO {counters} AS counter
        (epoch, window_size, window_number, key, thousandths, expires_at)
    SELECT accepted.epoch, diff.size, diff.number, diff.key, diff.thousandths,
        now() + diff.life * interval '1 millisecond' + interval '1 second'
    FROM accepted, unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[])
        AS diff (size, number, key, thousandths, life)
    WHERE diff.thousandths >= 0 OR NOT accepted.refunds OR EXISTS (
        SELECT FROM {counters}
        WHERE epoch = accepted.epoch AND window_size = diff.size AND window_number = diff.number
            AND sha256(key) = sha256(diff.key)
    )
    ORDER BY diff.size, diff.number, diff.key
    ON CONFLICT (epoch, window_size, window_number, sha256(key)) DO UPDATE
    -- Counts saturate, as strategy.rs requires. Invalid ones, which somebody else wrote, saturate
    -- first.
    SET thousandths = greatest(
            CASE WHEN excluded.thousandths < 0 AND (SELECT refunds FROM accepted)
                THEN least(0, greatest(-9007199254740991, counter.thousandths))
                ELSE -9007199254740991
            END,
            least(9007199254740991, excluded.thousandths
                + greatest(-9007199254740991, least(9007199254740991, counter.thousandths)))
        ),
        -- A change below about a second is skipped, since the column is indexed.
        expires_at = CASE
            WHEN excluded.expires_at > counter.expires_at + interval '1 second'
            THEN excluded.expires_at
            ELSE counter.expires_at
        END
    RETURNING id, window_size, window_number, key, thousandths
), numbered AS (
    UPDATE {epochs} AS present
    SET changes = present.changes + 1
    FROM (SELECT array_agg(id) AS counters FROM counted) AS batch
    WHERE present.epoch = $1 AND present.ended_at IS NULL AND batch.counters IS NOT NULL
    RETURNING present.epoch, present.changes, batch.counters
)
