//! The statements that are prepared in every session.

/// A statement of [`STATEMENTS`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cql {
    Epoch,
    BeginEpoch,
    ReplaceEpoch,
    Nodes,
    NoteNode,
    NoteLife,
    Changes,
    NoteChanges,
    Position,
    NotePosition,
    Count,
    Sums,
    Page,
    Total,
    Clock,
}

/// Statements. Sums have more than 64 bits, since the largest counts can be added often enough to
/// need them.
///
/// The clock is not `now()`, which does not advance for a while after a node's clock was set back.
pub(super) const STATEMENTS: [&str; 15] = [
    "SELECT epoch, toUnixTimestamp(currentTimestamp()) FROM {shards} WHERE namespace = ? AND shard = ?",
    "INSERT INTO {shards} (epoch, namespace, shard) VALUES (?, ?, ?) IF NOT EXISTS",
    "UPDATE {shards} SET epoch = ? WHERE namespace = ? AND shard = ? IF epoch = ?",
    "SELECT node, began, first, last, TTL(last), lives FROM {nodes} WHERE epoch = ?",
    "INSERT INTO {nodes} (epoch, node, began, first, last) VALUES (?, ?, ?, ?, ?)
        USING TTL ? AND TIMESTAMP ?",
    "INSERT INTO {nodes} (epoch, node, lives) VALUES (?, ?, ?) USING TTL ?",
    "SELECT number, changed FROM {changes}
        WHERE epoch = ? AND node = ? AND part = ? AND number >= ? AND number <= ?",
    "INSERT INTO {changes} (epoch, node, part, number, counters, changed) VALUES (?, ?, ?, ?, ?, ?)
        USING TTL 3600",
    "SELECT nodes FROM {positions} WHERE position = ?",
    "INSERT INTO {positions} (position, nodes) VALUES (?, ?) USING TTL 7200",
    "INSERT INTO {counters}
        (epoch, window_size, window_number, part, name, writer, thousandths, rest)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?",
    "SELECT name, sum(CAST(thousandths AS varint)) FROM {counters}
        WHERE epoch = ? AND window_size = ? AND window_number = ? AND part = ? AND name IN ?
        GROUP BY name",
    "SELECT name, max(rest), sum(CAST(thousandths AS varint)) FROM {counters}
        WHERE epoch = ? AND window_size = ? AND window_number = ? AND part = ? AND name > ?
        GROUP BY name LIMIT ?",
    "SELECT sum(CAST(thousandths AS varint)) FROM {counters}
        WHERE epoch = ? AND window_size = ? AND window_number = ? AND part = ? AND name = ?",
    "SELECT toUnixTimestamp(currentTimestamp()) FROM system.local",
];

impl Cql {
    /// Returns the statement, with placeholders for the names of tables.
    pub(super) fn text(self) -> &'static str {
        STATEMENTS.get(self as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_continues() {
        for statement in STATEMENTS {
            assert!(!statement.contains("now()"), "{statement}");
        }
        assert!(Cql::Epoch.text().contains("currentTimestamp()"));
        assert!(Cql::Clock.text().contains("currentTimestamp()"));
    }
}
