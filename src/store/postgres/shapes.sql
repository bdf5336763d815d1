-- Returns the shapes of the existing tables: persistence, kind, columns, and unique columns.
SELECT name, relpersistence, relkind::text || ': ' || (
    SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
        ORDER BY attname COLLATE "C")
    FROM pg_catalog.pg_attribute
    WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
) || '; ' || coalesce((
    SELECT string_agg(key, ', ' ORDER BY key COLLATE "C")
    FROM (
        SELECT substring(pg_get_indexdef(indexrelid) FROM ' USING (.*)$') AS key
        FROM pg_catalog.pg_index WHERE indrelid = relation.oid AND indisunique
    ) AS keys
), '')
FROM (VALUES {names}) AS names (name, oid)
JOIN pg_catalog.pg_class AS relation ON relation.oid = names.oid
