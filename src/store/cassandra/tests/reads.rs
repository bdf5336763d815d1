//! Changes of other nodes that take longer to read than an exchange may.

use core::time::Duration;
use std::collections::BTreeSet;

use crate::store::cassandra::Cassandra;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Diff, Strategy as _};
use crate::testing::cassandra::{Server, connect, new_table, options};
use crate::testing::conformance::{MINUTE, Node, block_on, hits, shard, since};
use crate::testing::proxy::Proxy;

const WRITERS: usize = 8;
const KEYS: usize = 120;

/// Returns a writer's keys, which are long.
fn counted(writer: usize) -> impl Iterator<Item = String> {
    (0..KEYS).map(move |number| format!("{writer}-{number}-{}", "x".repeat(180)))
}

#[test]
fn a_node_whose_reads_take_too_long_pushes_and_reads_less_at_once() {
    let ServerAddress::Tcp { host, port } = &Server::shared().address else {
        unreachable!("Cassandra has no socket");
    };
    // The ring's own address, so that the driver reaches all nodes through the proxy.
    let proxy = Proxy::between((host, 0), (host, *port));
    let table = new_table();
    let (options, own) = options(core::slice::from_ref(&proxy.address), &table);
    let impatient = StoreOptions { timeout: Duration::from_secs(1), ..options };
    block_on(async {
        let direct = || connect(&Server::shared().address, &table);
        let mut writer = Node::join(direct(), shard("api")).await;
        let mut node = Node::join(Cassandra::new(&impatient, &own), shard("api")).await;
        node.fetch().await;
        let mut expected = BTreeSet::new();
        for number in 0..WRITERS {
            let diffs: Vec<Diff> = counted(number).map(|key| hits(&key, 1)).collect();
            writer.push(diffs).await;
            expected.extend(counted(number).map(String::into_bytes));
        }
        // All of them have 300 kilobytes. At most 200 counters are returned at a time.
        proxy.slow(120_000);
        let number = node.number + 1;
        let batch = node.batch(number, vec![hits("own", 3)]);
        let mut failures = 0;
        let (told, position, has_more) = loop {
            let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
            match pushed {
                Ok(pushed) => break since(pushed),
                Err(error) => {
                    failures += 1;
                    assert!(failures < 8, "{error}");
                }
            }
        };
        assert!(failures > 0);
        assert!(has_more && told.is_empty());
        node.number = number;
        node.position = Some(position);
        let total = node.store.get_window(&node.shard, b"own", MINUTE, 7);
        assert_eq!(total.await.unwrap().whole(), 3);
        let mut told = BTreeSet::new();
        let mut has_more = true;
        while has_more {
            let question = node.batch(node.number, vec![]);
            let pushed = node.store.push_diffs(&node.shard, &question, 500).await;
            let Ok(pushed) = pushed else {
                failures += 1;
                assert!(failures < 20);
                continue;
            };
            let (counts, position, more) = since(pushed);
            told.extend(counts.into_iter().map(|count| count.key));
            (node.position, has_more) = (Some(position), more);
        }
        assert_eq!(told, expected);
    });
}
