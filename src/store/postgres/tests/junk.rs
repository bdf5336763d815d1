//! Overwrites every column of every row that nodes have written with values that no node writes:
//! the nodes continue.

use super::*;
use crate::testing::conformance::Others;

/// Returns SQL expressions of values for a column of a type.
fn junk(kind: &str) -> &'static [&'static str] {
    match kind {
        "smallint" => &["0", "-1", "32767"],
        "integer" => &["0", "-1", "2147483647"],
        "bigint" => {
            &["0", "-1", "42", "9223372036854775807", "9223372036854775806", "-9223372036854775808"]
        }
        "text" => &["''", "'api'", "repeat('x', 1000)"],
        "bytea" => &["''", "'\\x00ff'", "repeat('x', 10000)::bytea"],
        "uuid" => {
            &["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"]
        }
        "timestamp with time zone" => &["'infinity'", "'-infinity'", "'epoch'", "now()"],
        "ARRAY" => &[
            "'{}'",
            "'{NULL}'",
            "'{9223372036854775807,-9223372036854775808}'",
            "'{{1,2},{3,4}}'",
            "'[5:6]={1,2}'",
        ],
        other => panic!("another type: {other}"),
    }
}

const TABLES: [&str; 6] = ["_epochs", "_nodes", "", "_changes", "_levels", "_logs"];

#[test]
fn nodes_continue_whatever_a_row_contains() {
    let schema = Schema::new();
    block_on(async {
        let mut nodes = Others::start(|| schema.connect()).await;
        for suffix in TABLES {
            let columns = schema.ask(&format!(
                "SELECT column_name, data_type FROM information_schema.columns
                 WHERE table_schema = '{{}}' AND table_name = 'rl_counters{suffix}'
                    AND column_name <> 'id' ORDER BY 1"
            ));
            assert!(columns.len() >= 4);
            for column in &columns {
                for value in junk(&column[1]) {
                    // The latest row, and all rows.
                    for which in
                        ["WHERE ctid = (SELECT ctid FROM {table} ORDER BY ctid DESC LIMIT 1)", ""]
                    {
                        let table = format!("{}.rl_counters{suffix}", schema.name);
                        let which = which.replace("{table}", &table);
                        let update = format!("UPDATE {table} SET {} = {value} {which}", column[0]);
                        // Some values are rejected, since two rows would be equal.
                        let _ = Server::shared().try_ask(&update);
                        nodes.go_on(&update).await;
                    }
                }
            }
            schema.ask(&format!("DELETE FROM {{}}.rl_counters{suffix}"));
            nodes.go_on(&format!("no rows of {suffix}")).await;
        }
        // The place of the next change.
        schema.ask(
            "INSERT INTO {}.rl_counters_changes
             SELECT epoch, changes + 1, 'ffffffff-ffff-ffff-ffff-ffffffffffff', ARRAY[]::bigint[]
             FROM {}.rl_counters_epochs WHERE ended_at IS NULL",
        );
        nodes.go_on("a change to come").await;
    });
}

#[test]
fn a_count_at_the_end_of_its_type_is_added_to() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        let mut other = Node::join(schema.connect(), shard("api")).await;
        node.push(vec![hits("a", 1), hits("b", 1)]).await;
        other.fetch().await;
        for (total, expected) in [("9223372036854775807", 1), ("-9223372036854775808", -1)] {
            schema
                .ask(&format!("UPDATE {{}}.rl_counters SET thousandths = {total} WHERE key = 'a'"));
            node.push(vec![hits("a", expected), hits("b", 1)]).await;
            let counts = since(other.send(0, vec![]).await).0;
            let of_a = counts.iter().find(|count| count.key == b"a").unwrap();
            assert_eq!(
                of_a.total.thousandths(),
                expected * MAX_TOTAL.min(crate::policy::hits::Hits::MAX.thousandths())
            );
        }
        assert_eq!(total(&mut node, b"b").await, 3);
    });
}

#[test]
fn a_node_with_an_endless_life_does_not_count() {
    let schema = Schema::new();
    block_on(async {
        let mut nodes = Others::start(|| schema.connect()).await;
        schema.ask(
            "INSERT INTO {}.rl_counters_nodes
             SELECT epoch, 'ffffffff-ffff-ffff-ffff-ffffffffffff', -1, 'infinity'
             FROM {}.rl_counters_epochs WHERE ended_at IS NULL",
        );
        nodes.go_on("a node for ever").await;
        assert_eq!(nodes.living(), Some(2));
    });
}
