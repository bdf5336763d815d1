-- Notes the change, and tells those that listen of the totals after it: its epoch, number and node, then for
-- each counter the size and number of its window, the total and the key. What is too long to be told, they
-- fetch.
, noted AS (
    INSERT INTO {changes} (epoch, number, node, counters)
    SELECT epoch, changes, $2::text::uuid, counters FROM numbered
    RETURNING epoch, number, node
), news AS (
    SELECT concat_ws(' ', noted.epoch, noted.number, replace(noted.node::text, '-', ''),
        string_agg(concat_ws(':', window_size, window_number, thousandths, encode(key, 'hex')), ' '))
        AS words
    FROM noted, counted
    GROUP BY noted.epoch, noted.number, noted.node
)
SELECT pg_notify('ngx_rate_limiting', words) FROM news WHERE octet_length(words) < 8000
