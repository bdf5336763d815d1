//! Tests how long nodes are known.

use crate::store::cassandra::position::node_bytes;
use crate::store::contract::strategy::Strategy as _;
use crate::testing::cassandra::{KEYSPACE, Server, connect, new_table};
use crate::testing::conformance::{Node, block_on, hits, shard, since};

#[test]
fn a_node_that_was_recorded_without_a_life_continues() {
    let server = Server::shared();
    let table = new_table();
    block_on(async {
        let store = connect(&server.address, &table);
        let mut node = Node::join(store, shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let nodes = format!("{KEYSPACE}.{table}_nodes");
        let columns = "began, first, last, writetime(last)";
        let rows: Vec<(i64, i64, i64, i64)> = server.ask(&format!("SELECT {columns} FROM {nodes}"));
        let (began, first, last, at) = rows[0];
        let epoch = node.epoch.0.get().cast_signed();
        let id: String = node_bytes(node.id).map(|it| format!("{it:02x}")).concat();
        // As a tool that copies tables does.
        server.ask::<(bool,)>(&format!(
            "INSERT INTO {nodes} (epoch, node, began, first, last) \
             VALUES ({epoch}, 0x{id}, {began}, {first}, {last}) USING TIMESTAMP {}",
            at + 1
        ));
        for _ in 0..2 {
            node.push(vec![hits("a", 1)]).await;
        }
        let lives: Vec<(Option<i32>,)> = server.ask(&format!("SELECT TTL(last) FROM {nodes}"));
        assert!(lives[0].0.is_some());
        let all = node.fetch().await;
        assert!(all.is_empty());
    });
}

#[test]
fn nobody_s_changes_wait_until_another_one_has_no_more() {
    let server = Server::shared();
    let table = new_table();
    block_on(async {
        let join = async || Node::join(connect(&server.address, &table), shard("api")).await;
        let mut reader = join().await;
        let mut writers = [join().await, join().await, join().await];
        reader.fetch().await;
        for (number, writer) in writers.iter_mut().enumerate() {
            for batch in 0..9 {
                writer.push(vec![hits(&format!("{number}{batch}"), 1)]).await;
            }
        }
        let mut told = Vec::new();
        for _ in 0..6 {
            let batch = reader.batch(0, vec![]);
            let pushed = reader.store.push_diffs(&reader.shard, &batch, 1).await;
            let (counts, position, has_more) = since(pushed.unwrap());
            assert!(has_more);
            reader.position = Some(position);
            told.extend(counts.into_iter().map(|count| count.key[0]));
        }
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), writers.len(), "{told:?}");
    });
}
