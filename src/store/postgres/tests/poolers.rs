//! PgBouncer between a node and its server.

use super::*;
use crate::store::postgres::pooler::SHARED;
use crate::testing::postgres::Pooler;
use crate::testing::proxy::Proxy;

async fn opened(address: ServerAddress) -> Result<(), StoreError> {
    let mut store = connect(address, PUBLIC);
    open(&mut store).await.map(drop)
}

#[test]
fn a_pooler_that_gives_sessions_to_others_is_told_as_such() {
    let server = Server::start(&[]);
    block_on(async {
        for mode in ["transaction", "statement"] {
            let pooler = Pooler::start(&server, mode, 20);
            // Each attempt fails, and the log has one line.
            for _ in 0..3 {
                let error = opened(pooler.tcp()).await.unwrap_err();
                assert_eq!(error.failure, Failure::Unusable(SHARED.into()), "{mode}");
                assert!(!error.is_transient() && !error.may_have_applied());
            }
        }
    });
}

#[test]
fn a_pooler_that_is_slow_is_no_better() {
    let server = Server::start(&[]);
    let pooler = Pooler::start(&server, "transaction", 20);
    let proxy = Proxy::start(&pooler.tcp());
    // A login then takes about 200 ms.
    proxy.slow(2000);
    block_on(async {
        let error = opened(proxy.address.clone()).await.unwrap_err();
        assert_eq!(error.failure, Failure::Unusable(SHARED.into()));
    });
}

#[test]
fn a_pooler_that_keeps_sessions_may_be_between() {
    let server = Server::start(&[]);
    block_on(async {
        // With as many sessions as needed, and with one.
        for size in [20, 1] {
            let pooler = Pooler::start(&server, "session", size);
            let mut node = Node::join(connect(pooler.tcp(), PUBLIC), shard("api")).await;
            node.push(vec![hits("a", 1)]).await;
            assert!(total(&mut node, b"a").await > 0);
        }
    });
}
