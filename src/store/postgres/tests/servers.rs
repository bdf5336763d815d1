//! The choice among several servers, and PgBouncer between a node and its server.

use super::*;
use crate::store::postgres::pooler::SHARED;
use crate::testing::postgres::Pooler;
use crate::testing::proxy::{Proxy, with_greeting};

#[test]
fn an_error_names_a_server_of_another_protocol() {
    let http = with_greeting(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let redis_server = crate::testing::redis::Server::start(&[]);
    let missing = ServerAddress::Unix("/nonexistent/socket".into());
    let (mut options, own) = options(&[missing.clone(), http.clone(), redis_server.tcp()], PUBLIC);
    options.connect_timeout = Duration::from_secs(3);
    let servers = [missing, http, redis_server.tcp()];
    let causes = [
        "No such file or directory (os error 2)",
        "it does not speak the PostgreSQL protocol, but says \"HTTP/1.1 400 Bad Request\"",
        // The server waits for more.
        "no connection within 3000 ms; does it speak the PostgreSQL protocol, without TLS?",
    ];
    let pairs = servers.iter().zip(causes);
    let each = pairs.map(|(server, cause)| format!("{server} cannot be reached ({cause})"));
    let expected = each.collect::<Vec<_>>().join("; ");
    block_on(async {
        let error = open(&mut Postgres::new(&options, &own)).await.unwrap_err();
        assert_eq!(error.to_string(), expected);

        // The other way round: Postgres closes the connection without a message.
        let server = Server::shared().tcp();
        let mut store = crate::testing::redis::connect(server);
        let error = store.open_epoch(&shard("api"), None, new_epoch()).await;
        let message = error.unwrap_err().to_string();
        assert!(
            message.ends_with("; does it speak the Redis protocol, without TLS?)"),
            "{message}"
        );
    });
}

#[test]
fn a_replica_is_passed_over_until_it_is_promoted() {
    let mut primary = Server::start(&[]);
    let replica = primary.start_replica();
    let (options, postgres) = options(&[replica.tcp(), primary.tcp()], PUBLIC);
    block_on(async {
        let mut node = Node::join(Postgres::new(&options, &postgres), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(primary.value("SELECT count(*) FROM rl_counters"), "1");

        let alone = open(&mut connect(replica.tcp(), PUBLIC)).await;
        let error = alone.unwrap_err();
        assert_eq!(error.failure, Failure::Refused(Refusal::ReadOnly));
        assert!(error.is_transient() && !error.may_have_applied());

        primary.crash();
        replica.ask("SELECT pg_promote()");
        // At first, the client may not know that the connection is closed.
        let mut answer = Err(failure(&mut node, 2).await);
        for _ in 0..3 {
            let batch = node.batch(2, vec![hits("a", 1)]);
            answer = node.store.push_diffs(&node.shard, &batch, 500).await;
            if answer.is_ok() {
                break;
            }
        }
        // The tables exist without their content, so the nodes restore it.
        assert_eq!(answer, Ok(Pushed::NoEpoch));
    });
}

#[test]
fn a_server_that_becomes_read_only_is_left() {
    let [one, two] = [Server::start(&[]), Server::start(&[])];
    let (options, postgres) = options(&[one.tcp(), two.tcp()], PUBLIC);
    block_on(async {
        let mut node = Node::join(Postgres::new(&options, &postgres), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        one.ask("ALTER SYSTEM SET default_transaction_read_only = on");
        one.ask("SELECT pg_reload_conf()");
        // The replica must not answer a node that only asks, either.
        let refused = async {
            loop {
                let batch = node.batch(1, vec![]);
                if let Err(error) = node.store.push_diffs(&node.shard, &batch, 500).await {
                    break error;
                }
            }
        };
        let deadline = Duration::from_secs(20);
        let error = tokio::time::timeout(deadline, refused).await.unwrap();
        assert_eq!(error.failure, Failure::Refused(Refusal::ReadOnly));
        assert_eq!(error.server, one.tcp());
        assert_eq!(node.send(1, vec![]).await, Pushed::NoEpoch);
        let mut alone = impatient(&[one.tcp()]);
        let error = open(&mut alone).await.unwrap_err();
        assert_eq!(error.failure, Failure::Refused(Refusal::ReadOnly));
    });
}

async fn opened(address: ServerAddress) -> Result<(), StoreError> {
    let mut store = connect(address, PUBLIC);
    open(&mut store).await.map(drop)
}

#[test]
fn an_error_names_a_pooler_that_shares_sessions() {
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
