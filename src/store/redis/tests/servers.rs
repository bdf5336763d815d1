//! The choice among several servers, and servers with TLS.

use super::*;
use crate::testing::certificates::{Authority, trusting};
use crate::testing::proxy::with_greeting;

#[test]
fn an_error_quotes_a_server_of_another_protocol() {
    let http = with_greeting(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n");
    let authority = Authority::new();
    let tls = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "no");
    block_on(async {
        let message = async |server: ServerAddress| {
            let error = open(&mut impatient(&[server])).await.unwrap_err();
            error.to_string()
        };
        assert_eq!(
            message(http.clone()).await,
            format!(
                "{http} cannot be reached (it does not speak the Redis protocol, but says \
                 \"HTTP/1.1 400 Bad Request\")"
            )
        );
        // The server's words may be lost when it closes the connection.
        let message = message(tls.tcp()).await;
        assert!(
            message.ends_with(": is \"tls on\" missing?)")
                || message.ends_with("; does it speak the Redis protocol, without TLS?)"),
            "{message}"
        );
    });
}

#[test]
fn after_a_replica_the_next_server_is_asked_at_once() {
    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let (options, redis) = options(&[replica.tcp(), primary.tcp()]);
    block_on(async {
        let mut node = join(primary.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        replicated(&replica, 1).await;
        // A replica must not answer a node that only asks, either.
        for diffs in [vec![], vec![hits("a", 1)]] {
            node.store = connect(replica.tcp());
            let number = if diffs.is_empty() { 1 } else { 2 };
            let batch = node.batch(number, diffs.clone());
            let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
            let error = pushed.unwrap_err();
            assert_eq!(error.failure, Failure::Refused(Refusal::ReadOnly));
            assert_eq!(error.server, replica.tcp());
            assert!(error.is_transient() && !error.may_have_applied());
            node.store = Redis::new(&options, &redis);
            since(node.send(number, diffs).await);
        }
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
        assert_eq!(total.unwrap().whole(), 2);
    });
}

#[test]
fn without_its_primary_a_replica_is_left() {
    let server = Server::start(&[]);
    let replica = with_one_answer("-MASTERDOWN Link with MASTER is down");
    let mut store = impatient(&[replica, server.tcp()]);
    block_on(async {
        assert_eq!(open(&mut store).await, Ok(()));
    });
}

#[test]
fn after_a_failover_lost_writes_are_noticed() {
    let mut old = Server::start(&[]);
    let new = Server::start(&["--replicaof", "127.0.0.1", &old.port.to_string()]);
    block_on(async {
        let mut writer = join(old.tcp()).await;
        let mut reader = join(old.tcp()).await;
        let mut third = join(old.tcp()).await;
        writer.push(vec![hits("a", 1)]).await;
        third.push(vec![hits("b", 1)]).await;
        replicated(&new, 2).await;
        let _: String = new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        // These hits will be lost.
        writer.push(vec![hits("a", 1)]).await;
        assert_eq!(reader.fetch().await.len(), 2);
        old.kill();

        for node in [&mut writer, &mut reader, &mut third] {
            node.store = connect(new.tcp());
        }
        // The same number of bytes replaces the lost ones.
        third.push(vec![hits("b", 1)]).await;
        let ([at, _], [lost, _]) = (third.position.unwrap().0, reader.position.unwrap().0);
        assert_eq!(at, lost);
        for _ in 0..3 {
            third.push(vec![hits("b", 1)]).await;
        }
        // The reader has read something else there, and must not miss the replacement.
        behind(&reader.send(0, vec![]).await);
        // The writer's second batch is lost, so the next one cannot be applied.
        assert_eq!(writer.send(3, vec![hits("a", 1)]).await, Pushed::Lost);
        assert_eq!(writer.send(2, vec![]).await, Pushed::Lost);
    });
}

#[test]
fn a_server_without_tls_is_not_used_with_it_nor_the_other_way_round() {
    let authority = Authority::new();
    let plain = Server::start(&[]);
    let (mut options, redis) = options(&[plain.tcp()]);
    options.tls = Some(trusting(&authority));
    options.connect_timeout = Duration::from_secs(1);
    let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
    let cause = "no connection with TLS within 1000 ms";
    assert_eq!(error.failure, Failure::Unreachable(cause.into()));
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "no");
    let error = block_on(open(&mut connect(server.tcp()))).unwrap_err();
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
}
