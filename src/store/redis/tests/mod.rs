//! The suite for Redis, and what only Redis does.

mod access;
mod failures;
mod keys;
mod servers;

use core::time::Duration;

use super::one_answer::with_one_answer;
use super::testing::{Server, connect, options, tcp};
use super::{Redis, Step};
use crate::store::conformance::{
    MINUTE, Node, behind, block_on, hits, pairs, shard, since, totals,
};
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::{Credentials, Secret, TlsOptions, Topology};
use crate::store::proxy::Proxy;
use crate::store::server::ServerAddress;
use crate::store::strategy::{Batch, Diff, Pushed, Strategy};

mod over_tcp {
    use crate::store::conformance::conformance_tests;
    conformance_tests!(super::super::testing::Tcp);
}

mod over_a_unix_socket {
    use crate::store::conformance::conformance_tests;
    conformance_tests!(super::super::testing::Unix);
}

const SHARD: &str = "{rl:api:0}";

async fn join(server: ServerAddress) -> Node<Redis> {
    Node::join(connect(server), shard("api")).await
}

/// A strategy that waits for only so long.
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
    options.credentials = Credentials {
        username: secret(username),
        password: secret(password),
    };
    Redis::new(&options, &redis)
}

/// What goes wrong with the node's batch of this number.
async fn failure(node: &mut Node<Redis>, number: u64) -> StoreError {
    let batch = node.batch(number, vec![hits("a", 1)]);
    let pushed = node.store.push_diffs(&node.shard, &batch, 500);
    pushed.await.expect_err("pushed")
}

async fn open(store: &mut Redis) -> Result<(), StoreError> {
    let epoch = crate::store::conformance::new_epoch();
    store.open_epoch(&shard("api"), None, epoch).await.map(drop)
}
