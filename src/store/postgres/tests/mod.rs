//! Runs the conformance suite with Postgres, and tests what is specific to it.

mod access;
mod channel;
mod concurrency;
#[cfg(all(test, feature = "measure"))]
mod cost;
mod decisions;
mod failures;
mod junk;
mod logs;
mod servers;
mod tables;
mod tls;

use core::time::Duration;

use super::Postgres;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::Credentials;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Batch, Diff, MAX_TOTAL, Pushed, Strategy};
use crate::store::postgres::options::TableName;
use crate::testing::conformance::{
    MINUTE, Node, behind, block_on, hits, new_epoch, pairs, shard, since, totals, until,
};
use crate::testing::postgres::{LOCKED, PUBLIC, Schema, Server, connect, options, secret};
use crate::testing::server_tests::{denies, failure, open};

mod servers_as_others_have_them {
    use crate::testing::server_tests::server_tests;
    server_tests!(crate::testing::postgres::fixtures::Place);
}

mod over_tcp {
    use crate::testing::conformance::{conformance_tests, decision_tests};
    use crate::testing::postgres::fixtures::{Over, Tcp};
    conformance_tests!(Over<Tcp>, Changes, Added);
    conformance_tests!(Over<Tcp>, Channel);
    conformance_tests!(Over<Tcp>, Nodes);
    decision_tests!(Over<Tcp>, Changes, Added);
}

mod over_tls {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::postgres::fixtures::{Over, Tls};
    conformance_tests!(Over<Tls>, Changes, Added);
    conformance_tests!(Over<Tls>, Channel);
}

mod over_a_unix_socket {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::postgres::fixtures::{Over, Unix};
    conformance_tests!(Over<Unix>, Changes, Added);
    conformance_tests!(Over<Unix>, Channel);
}

/// Returns a strategy with a short timeout.
fn impatient(servers: &[ServerAddress]) -> Postgres {
    let (mut options, postgres) = options(servers, PUBLIC);
    options.connect_timeout = Duration::from_secs(2);
    options.timeout = Duration::from_secs(1);
    Postgres::new(&options, &postgres)
}

async fn total(node: &mut Node<Postgres>, key: &[u8]) -> i64 {
    let total = node.store.get_window(&node.shard, key, MINUTE, 7).await;
    total.unwrap().whole()
}

/// Waits until this number of sessions wait for a lock in statements about a schema.
async fn until_blocked(schema: &Schema, sessions: usize) {
    let query = "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'";
    let is_so = || schema.ask(query) == [[sessions.to_string()]];
    until("blocked", is_so).await;
}
