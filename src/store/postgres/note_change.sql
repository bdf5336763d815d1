-- Records the change, which ends the statement.
INSERT INTO {changes} (epoch, number, node, counters)
SELECT epoch, changes, $2::text::uuid, counters FROM numbered
