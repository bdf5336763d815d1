-- Waits until no other transaction holds any of these locks, and takes them for this one.
--
-- $1 the locks, in order
SELECT pg_advisory_xact_lock(lock) FROM unnest($1::bigint[]) AS lock
