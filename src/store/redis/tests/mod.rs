//! Runs the conformance suite with Redis, and tests what is specific to it.

mod access;
mod channel;
mod cluster_decisions;
mod clusters;
#[cfg(all(test, feature = "measure"))]
mod cost;
mod decisions;
mod failures;
mod foreign;
mod junk;
mod keys;
mod layouts;
mod logs;
mod runs;
mod sentinels;
mod servers;

use core::time::Duration;
use std::io::{Read, Write};
use std::sync::Arc;

use super::Redis;
use crate::store::contract::batch::PageStep;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::{Credentials, Secret, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Batch, BatchId, Diff, Pushed, Strategy};
use crate::store::redis::options::{RedisOptions, Topology};
use crate::testing::conformance::{
    Listener, MINUTE, Node, behind, block_on, hits, pairs, shard, since, totals, until,
};
use crate::testing::proxy::{Proxy, listen};
use crate::testing::redis::{Server, connect, options};
use crate::testing::server_tests::{denies, failure, open};

mod servers_as_others_have_them {
    use crate::testing::server_tests::server_tests;
    server_tests!(crate::testing::redis::Server);
}

mod over_tcp {
    use crate::testing::conformance::{conformance_tests, decision_tests};
    use crate::testing::redis::fixtures::{Over, Tcp};
    conformance_tests!(Over<Tcp>, Changes, Added);
    conformance_tests!(Over<Tcp>, Nodes);
    conformance_tests!(Over<Tcp>, Channel);
    decision_tests!(Over<Tcp>, Changes, Added);
}

mod over_tls {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::redis::fixtures::{Over, Tls};
    conformance_tests!(Over<Tls>, Changes, Added);
    conformance_tests!(Over<Tls>, Channel);
}

mod over_a_cluster {
    use crate::testing::conformance::{conformance_tests, decision_tests};
    use crate::testing::redis::cluster::SharedCluster;
    conformance_tests!(SharedCluster, Changes, Added);
    conformance_tests!(SharedCluster, Nodes);
    conformance_tests!(SharedCluster, Channel);
    decision_tests!(SharedCluster, Changes, Added, of one shard);
}

mod over_a_unix_socket {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::redis::fixtures::{Over, Unix};
    conformance_tests!(Over<Unix>, Changes, Added);
    conformance_tests!(Over<Unix>, Channel);
}

const SHARD: &str = "rl:{api:0}";

async fn join(server: ServerAddress) -> Node<Redis> {
    Node::join(connect(server), shard("api")).await
}

/// Returns a strategy with a short timeout.
fn impatient(servers: &[ServerAddress]) -> Redis {
    let (mut options, redis) = options(servers);
    options.connect_timeout = Duration::from_secs(1);
    options.timeout = Duration::from_secs(1);
    Redis::new(&options, &redis)
}

fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

fn with_credentials(server: &Server, username: &str, password: &str) -> Redis {
    let (mut options, redis) = options(&[server.tcp()]);
    options.credentials = Credentials { username: secret(username), password: secret(password) };
    Redis::new(&options, &redis)
}

/// Waits until the replica knows this number of nodes.
async fn replicated(replica: &Server, nodes: usize) {
    let has_arrived = || {
        let fields: Vec<String> = replica.ask(&["HKEYS", SHARD]).unwrap_or_default();
        let of_nodes = fields.iter().filter(|field| field.starts_with("b:"));
        of_nodes.count() == nodes
    };
    until("replicated", has_arrived).await;
}

/// Pushes the next batch as news, repeatedly until it is applied.
async fn tell(node: &mut Node<Redis>, diffs: Vec<Diff>) {
    let batch = Batch { is_news: true, ..node.batch(node.number + 1, diffs) };
    let pushed = until_applied(node, &batch).await;
    assert!(matches!(pushed, Pushed::Applied { .. }), "{pushed:?}");
}

/// Pushes the next batch, repeatedly until it is applied.
async fn push_until_applied(node: &mut Node<Redis>, diffs: Vec<Diff>) -> Pushed {
    let batch = node.batch(node.number + 1, diffs);
    until_applied(node, &batch).await
}

async fn until_applied(node: &mut Node<Redis>, batch: &Batch) -> Pushed {
    node.number += 1;
    let pushing = async {
        loop {
            match node.store.push_diffs(&node.shard, batch, 500).await {
                Ok(pushed) => return pushed,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let deadline = Duration::from_secs(60);
    tokio::time::timeout(deadline, pushing).await.expect("pushed")
}

/// Starts a server that is not Redis. It answers `PING` correctly, rejects `HELLO` as unknown, and answers
/// everything else with `line`.
fn with_one_answer(line: impl Into<String>) -> ServerAddress {
    let line: Arc<str> = line.into().into();
    listen(move |mut client| {
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let asks = |command: &[u8]| {
                let mut words = buffer[..length].windows(command.len());
                words.any(|word| word == command)
            };
            let answer = match () {
                () if asks(b"PING") => "+PONG",
                () if asks(b"HELLO") => "-ERR unknown command 'HELLO'",
                () => &*line,
            };
            let _ = client.write_all(format!("{answer}\r\n").as_bytes());
        }
    })
}
