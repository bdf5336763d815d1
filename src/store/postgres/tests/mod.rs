//! The suite for Postgres, and what only Postgres does.

mod access;
mod concurrency;
mod decisions;
mod failures;
mod servers;
mod tables;
mod tls;

use core::time::Duration;

use super::Postgres;
use super::testing::{LOCKED, Schema, Server, connect, options, secret};
use crate::store::conformance::{
    MINUTE, Node, behind, block_on, hits, new_epoch, pairs, shard, since, totals,
};
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::Credentials;
use crate::store::postgres::options::TableName;
use crate::store::proxy::Proxy;
use crate::store::server::ServerAddress;
use crate::store::strategy::{Diff, Pushed, Strategy};

mod over_tcp {
    use crate::store::conformance::{conformance_tests, decision_tests};
    use crate::store::postgres::fixtures::{Over, Tcp};
    conformance_tests!(Over<Tcp>, Changes, Added);
    decision_tests!(Over<Tcp>, Changes, Added);
}

mod over_tls {
    use crate::store::conformance::conformance_tests;
    use crate::store::postgres::fixtures::{Over, Tls};
    conformance_tests!(Over<Tls>, Changes, Added);
}

mod over_a_unix_socket {
    use crate::store::conformance::conformance_tests;
    use crate::store::postgres::fixtures::{Over, Unix};
    conformance_tests!(Over<Unix>, Changes, Added);
}

/// The schema that every server has from the beginning.
const PUBLIC: &str = "public";

async fn join(server: &Server) -> Node<Postgres> {
    Node::join(connect(server.tcp(), PUBLIC), shard("api")).await
}

/// A strategy that waits for only so long.
fn impatient(servers: &[ServerAddress]) -> Postgres {
    let (mut options, postgres) = options(servers, PUBLIC);
    options.connect_timeout = Duration::from_secs(2);
    options.timeout = Duration::from_secs(1);
    Postgres::new(&options, &postgres)
}

/// What goes wrong with the node's batch of this number.
async fn failure(node: &mut Node<Postgres>, number: u64) -> StoreError {
    let batch = node.batch(number, vec![hits("a", 1)]);
    let pushed = node.store.push_diffs(&node.shard, &batch, 500);
    pushed.await.expect_err("pushed")
}

async fn open(store: &mut Postgres) -> Result<(), StoreError> {
    store
        .open_epoch(&shard("api"), None, new_epoch())
        .await
        .map(drop)
}

async fn total(node: &mut Node<Postgres>, key: &[u8]) -> i64 {
    let total = node.store.get_window(&node.shard, key, MINUTE, 7).await;
    total.unwrap().whole()
}
